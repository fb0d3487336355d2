-- Ends a worker, or a reader of a group: what it still owns is free. Who has gone already needs nothing but the first
-- statement, and must not wait here for a transaction that a cut network has left open.
CREATE OR REPLACE FUNCTION projections.leave_v1(p_owner text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM projections.workers AS w WHERE w.owner = p_owner;
    UPDATE projections.projection_ranges AS r SET owner = NULL
    WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM projections.projection_ranges AS o WHERE o.owner = p_owner FOR NO KEY UPDATE SKIP LOCKED
    ));
    UPDATE projections.group_ranges AS r SET owner = NULL
    WHERE r.ctid = ANY (ARRAY(
        SELECT o.ctid FROM projections.group_ranges AS o WHERE o.owner = p_owner FOR NO KEY UPDATE SKIP LOCKED
    ))
$$;
