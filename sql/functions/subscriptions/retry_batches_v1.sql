-- Has a batch that failed handled again now, with all of its retries before it, or all dead ones of the group; returns how
-- many there were. p_waiting: also one that still has a retry before it. Of two who decide about one at once, the second finds
-- none: what waits to be handled again is not dead.
--
-- Raises PJ082 when there is no such group.
CREATE OR REPLACE FUNCTION projections.retry_batches_v1(
    p_group text, p_retry_id bigint DEFAULT NULL, p_waiting boolean DEFAULT FALSE
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _locked bigint[] := projections._lock_batches_v1(p_group, p_retry_id, p_waiting);
BEGIN
    UPDATE projections.group_retries AS r SET due_at = clock_timestamp(), attempts = 0 WHERE r.retry_id = ANY (_locked);
    RETURN cardinality(_locked);
END;
$$;
