-- Removes a batch that failed, or all dead ones of the group: their handlers never get them again; returns how many there were.
-- p_waiting: also one that still has a retry before it. Raises PJ082 when there is no such group.
CREATE OR REPLACE FUNCTION projections.drop_batches_v1(
    p_group text, p_retry_id bigint DEFAULT NULL, p_waiting boolean DEFAULT FALSE
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _locked bigint[] := projections._lock_batches_v1(p_group, p_retry_id, p_waiting);
BEGIN
    DELETE FROM projections.group_retries AS r WHERE r.retry_id = ANY (_locked);
    RETURN cardinality(_locked);
END;
$$;
