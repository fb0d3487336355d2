-- Gives up an event that a condition failed on: its subscriptions never get it. Returns whether it was waiting.
CREATE OR REPLACE FUNCTION projections._drop_unanswered_v1(p_unanswered_id bigint)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (DELETE FROM projections.unanswered AS u WHERE u.unanswered_id = p_unanswered_id RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;
