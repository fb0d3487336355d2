-- Stops a condition, because it fails on most events or takes too long: it alone, the others go on. What it is to be asked waits
-- in pages; those that name it get higher numbers than any given out by now. One that is still catching up keeps its place.
CREATE OR REPLACE FUNCTION projections._quarantine_condition_v1(p_condition_id integer, p_error text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.conditions AS c
    SET quarantined_at = clock_timestamp(), error = left(p_error, 2000), unasked_from = coalesce(c.unasked_from, (
        SELECT i.last_value + CASE WHEN i.is_called THEN 1 ELSE 0 END FROM projections.match_ids AS i
    ))
    WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NULL
$$;
