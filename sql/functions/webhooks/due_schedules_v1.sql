-- Which schedules are due, or are within p_ahead, the longest due first; and in how long: not above 0 of those that are due.
CREATE OR REPLACE FUNCTION projections.due_schedules_v1(p_ahead interval DEFAULT '1 second', p_limit integer DEFAULT 500)
RETURNS TABLE (schedule_id text, due_in interval)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    -- Once: a condition with a clock in it would walk the whole index.
    _now timestamptz := clock_timestamp();
BEGIN
    RETURN QUERY
    SELECT s.schedule_id, s.next_at - _now
    FROM projections.webhook_schedules AS s
    WHERE NOT s.paused AND s.next_at <= _now + p_ahead AND s.held_until <= _now
    ORDER BY s.next_at LIMIT p_limit;
END;
$$;
