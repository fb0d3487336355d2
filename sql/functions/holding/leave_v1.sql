-- Ends a worker, or a reader of a group: what it still owns is free. Who has gone already needs nothing but the first
-- statement, and must not wait here for a transaction that a cut network has left open.
CREATE OR REPLACE FUNCTION projections.leave_v1(p_owner text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM projections.workers AS w WHERE w.owner = p_owner;
    UPDATE projections.projection_ranges AS r SET owner = NULL
    FROM (
        SELECT o.projection_id, o.min_slice FROM projections.projection_ranges AS o WHERE o.owner = p_owner
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free
    WHERE r.projection_id = free.projection_id AND r.min_slice = free.min_slice;
    UPDATE projections.group_ranges AS r SET owner = NULL
    FROM (
        SELECT o.group_id, o.min_slice, o.handler_id FROM projections.group_ranges AS o WHERE o.owner = p_owner
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS free
    WHERE r.group_id = free.group_id AND r.min_slice = free.min_slice
    AND coalesce(r.handler_id, 0) = coalesce(free.handler_id, 0)
$$;
