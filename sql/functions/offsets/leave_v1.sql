-- Ends a worker: what it still owns is free.
CREATE OR REPLACE FUNCTION projections.leave_v1(p_owner text)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM projections.workers AS w WHERE w.owner = p_owner
$$;
