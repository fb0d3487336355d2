-- Takes a schedule that is due for the caller's transaction, with the time to go by; nothing where it is not due (any more),
-- or somebody else has it.
CREATE OR REPLACE FUNCTION projections.take_schedule_v1(p_schedule_id text)
RETURNS TABLE (
    schedule_id text, tenant text, name text, cron text, timezone text, topic text, data text, endpoint_id text, missed text,
    next_at timestamptz, taken_at timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT
        s.schedule_id, s.tenant, s.name, s.cron, s.timezone, s.topic, s.data, s.endpoint_id, s.missed, s.next_at, _now
    FROM projections.webhook_schedules AS s
    WHERE s.schedule_id = p_schedule_id AND NOT s.paused AND s.next_at <= _now AND s.held_until <= _now
    FOR NO KEY UPDATE SKIP LOCKED;
END;
$$;
