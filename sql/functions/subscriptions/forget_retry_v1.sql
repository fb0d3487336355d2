-- Removes a batch that was handled, or that nobody wants any more; returns whether it was there.
CREATE OR REPLACE FUNCTION projections.forget_retry_v1(p_retry_id bigint)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (DELETE FROM projections.group_retries AS r WHERE r.retry_id = p_retry_id RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;
