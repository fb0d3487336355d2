-- Makes a schedule of a tenant; who calls it has checked the cron line, and says when its first tick is. Gives the row as it is
-- written.
--
-- Raises PJ091 when the tenant has no such endpoint, and PJ098 when it has p_at_most schedules already; a name that it has in
-- use already is a unique_violation.
CREATE OR REPLACE FUNCTION projections._create_schedule_v1(
    p_schedule_id text, p_tenant text, p_name text, p_cron text, p_timezone text, p_topic text, p_data text,
    p_endpoint_id text, p_missed text, p_next_at timestamptz, p_at_most integer DEFAULT NULL
)
RETURNS projections.webhook_schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _made projections.webhook_schedules;
BEGIN
    PERFORM projections._check_room_v1('schedules', p_tenant, p_at_most);
    PERFORM projections._check_schedule_endpoint_v1(p_tenant, p_endpoint_id);
    INSERT INTO projections.webhook_schedules (
        schedule_id, tenant, name, cron, timezone, topic, data, endpoint_id, missed, next_at
    ) VALUES (
        p_schedule_id, p_tenant, p_name, p_cron, p_timezone, p_topic, p_data, p_endpoint_id, p_missed, p_next_at
    ) RETURNING * INTO _made;
    RETURN _made;
END;
$$;
