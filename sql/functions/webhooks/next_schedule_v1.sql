-- In how long the next tick of a schedule is due; NULL where none is.
CREATE OR REPLACE FUNCTION projections.next_schedule_v1()
RETURNS interval
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    -- Once: a condition with a clock in it would walk the whole index.
    _now timestamptz := clock_timestamp();
BEGIN
    RETURN (
        SELECT min(s.next_at) - _now FROM projections.webhook_schedules AS s WHERE NOT s.paused AND s.next_at > _now
    );
END;
$$;
