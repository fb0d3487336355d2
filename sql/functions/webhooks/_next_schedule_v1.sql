-- In how long the next tick of a schedule is due; NULL where none is. Those that are due already do not count, unless p_due: then
-- it is 0 where there is one.
CREATE OR REPLACE FUNCTION projections._next_schedule_v1(p_due boolean DEFAULT FALSE)
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
    IF p_due AND EXISTS (
        SELECT FROM projections.webhook_schedules AS s WHERE NOT s.paused AND s.next_at <= _now AND s.held_until <= _now
    ) THEN
        RETURN interval '0';
    END IF;
    RETURN (
        SELECT min(s.next_at) - _now FROM projections.webhook_schedules AS s WHERE NOT s.paused AND s.next_at > _now
    );
END;
$$;
