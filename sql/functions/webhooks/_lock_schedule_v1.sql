-- Locks a schedule for a change, and gives its row. A tenant of NULL is any, so is a version of NULL.
--
-- Raises PJ095 when the tenant has no such schedule, and PJ099 when it has another version.
CREATE OR REPLACE FUNCTION projections._lock_schedule_v1(p_tenant text, p_schedule_id text, p_version integer)
RETURNS projections.webhook_schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _found projections.webhook_schedules;
BEGIN
    SELECT s.* INTO _found FROM projections.webhook_schedules AS s
    WHERE s.schedule_id = p_schedule_id AND (p_tenant IS NULL OR s.tenant = p_tenant) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', quote_literal(p_schedule_id) USING ERRCODE = 'PJ095';
    END IF;
    IF _found.version <> p_version THEN
        RAISE EXCEPTION 'schedule % has version %, not %: read it again, and change what it is now',
            quote_literal(p_schedule_id), _found.version, p_version USING ERRCODE = 'PJ099';
    END IF;
    RETURN _found;
END;
$$;
