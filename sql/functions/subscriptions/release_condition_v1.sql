-- Has a condition asked again: about what waits for it, in its order, and what it failed on, too; then about what comes. Returns
-- whether it was stopped or had failed on anything.
CREATE OR REPLACE FUNCTION projections.release_condition_v1(p_condition_id integer)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH released AS (
        UPDATE projections.conditions AS c SET quarantined_at = NULL, error = NULL, failures = 0
        WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NOT NULL RETURNING 1
    ), retried AS (
        UPDATE projections.unanswered AS u SET due = TRUE WHERE u.condition_id = p_condition_id AND NOT u.due RETURNING 1
    )
    SELECT EXISTS (SELECT FROM released) OR EXISTS (SELECT FROM retried)
$$;
