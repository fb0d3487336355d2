-- Locks a batch that failed, or all dead ones of the group, in the order in which all do who lock several; returns their
-- numbers. p_waiting: also one that still has a retry before it. Raises PJ082 when there is no such group.
CREATE OR REPLACE FUNCTION projections._lock_batches_v1(p_group text, p_retry_id bigint, p_waiting boolean)
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _group integer;
BEGIN
    SELECT g.group_id INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %: subscribe for it, or create it first', quote_literal(p_group) USING ERRCODE = 'PJ082';
    END IF;
    IF p_retry_id IS NULL THEN
        RETURN ARRAY(
            SELECT r.retry_id FROM projections.group_retries AS r
            WHERE r.group_id = _group AND r.due_at IS NULL ORDER BY r.retry_id FOR UPDATE
        );
    END IF;
    RETURN ARRAY(
        SELECT r.retry_id FROM projections.group_retries AS r
        WHERE r.retry_id = p_retry_id AND r.group_id = _group AND (r.due_at IS NULL OR p_waiting) FOR UPDATE
    );
END;
$$;
