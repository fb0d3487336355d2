-- Has a condition asked again about an event that it failed on; returns whether it was waiting. Whoever matches does so within a
-- second, unless the condition is stopped.
CREATE OR REPLACE FUNCTION projections._retry_unanswered_v1(p_unanswered_id bigint)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH retried AS (
        UPDATE projections.unanswered AS u SET due = TRUE
        WHERE u.unanswered_id = p_unanswered_id RETURNING 1
    )
    SELECT EXISTS (SELECT FROM retried)
$$;
