-- Notes the statements of the read models of a projection, as a worker of a version has them, and forgets those of other versions but the
-- one that runs: a worker of the next version may wait for its rebuild.
CREATE OR REPLACE FUNCTION projections._note_read_models_v1(
    p_projection_id integer, p_version integer, p_names text[], p_tables text[], p_statements text[]
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    -- Of several that start at a time, one after the other.
    SELECT FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    DELETE FROM projections.read_models AS m
    WHERE m.projection_id = p_projection_id AND (
        m.version = p_version
        OR m.version <> (SELECT p.version FROM projections.projections AS p WHERE p.projection_id = p_projection_id)
    );
    INSERT INTO projections.read_models (projection_id, version, name, table_name, statement)
    SELECT p_projection_id, p_version, m.name, m.table_name, m.statement
    FROM unnest(p_names, p_tables, p_statements) AS m (name, table_name, statement)
    WHERE EXISTS (SELECT FROM projections.projections AS p WHERE p.projection_id = p_projection_id);
$$;
