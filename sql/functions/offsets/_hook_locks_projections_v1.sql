-- The tables that change when a projection or a rebuild begins, or goes back.
CREATE OR REPLACE FUNCTION projections._hook_locks_projections_v1()
RETURNS SETOF text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    VALUES ('projections.projections'), ('projections.rebuilds')
$$;
