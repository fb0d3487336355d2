-- Has a dead batch, or one that waits, handled again now, with all of its retries before it; returns whether it was there.
CREATE OR REPLACE FUNCTION projections.replay_retry_v1(p_retry_id bigint)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH again AS (
        UPDATE projections.group_retries AS r SET due_at = clock_timestamp(), attempts = 0
        WHERE r.retry_id = p_retry_id RETURNING 1
    )
    SELECT EXISTS (SELECT FROM again)
$$;
