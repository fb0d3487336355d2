-- The events that a condition has failed on and is to be asked about again, in their order; none while it is stopped.
CREATE OR REPLACE FUNCTION projections._next_unanswered_v1(p_condition_id integer, p_limit integer)
RETURNS projections.unanswered[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT coalesce(array_agg(d::projections.unanswered ORDER BY d.unanswered_id), '{}')
    FROM (
        SELECT u.* FROM projections.unanswered AS u
        WHERE u.condition_id = p_condition_id AND u.due
        AND NOT EXISTS (
            SELECT FROM projections.conditions AS c WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NOT NULL
        )
        ORDER BY u.unanswered_id LIMIT p_limit
    ) AS d
$$;
