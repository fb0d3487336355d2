-- Takes batches that are due for handlers of a group, the earliest first. They are due again at taken_until, after p_lease,
-- should nobody report their outcomes: finish_retry_v1.
CREATE OR REPLACE FUNCTION projections.take_retries_v1(
    p_group text, p_handlers text[], p_lease interval DEFAULT '5 minutes', p_limit integer DEFAULT 10
)
RETURNS TABLE (
    retry_id bigint, handler text, first_match_id bigint, last_match_id bigint, attempts integer, matches text,
    taken_until timestamptz
)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
    UPDATE projections.group_retries AS r SET due_at = clock_timestamp() + p_lease
    FROM (
        SELECT d.retry_id FROM projections.group_retries AS d
        INNER JOIN projections.subscription_groups AS g ON d.group_id = g.group_id
        WHERE g.name = p_group AND d.handler = ANY (p_handlers) AND d.due_at <= clock_timestamp()
        ORDER BY d.due_at LIMIT p_limit
        FOR NO KEY UPDATE OF d SKIP LOCKED
    ) AS d
    WHERE r.retry_id = d.retry_id
    RETURNING r.retry_id, r.handler, r.first_match_id, r.last_match_id, r.attempts, r.matches::text, r.due_at
$$;
