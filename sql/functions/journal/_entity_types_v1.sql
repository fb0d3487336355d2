-- The entity types that sources are of: one step in the index for each, however many sources and events there are.
CREATE OR REPLACE FUNCTION projections._entity_types_v1()
RETURNS SETOF text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE types AS (
        (SELECT s.entity_type FROM projections.sources AS s ORDER BY s.entity_type LIMIT 1)
        UNION ALL
        SELECT (
            SELECT s.entity_type FROM projections.sources AS s
            WHERE s.entity_type > t.entity_type ORDER BY s.entity_type LIMIT 1
        )
        FROM types AS t WHERE t.entity_type IS NOT NULL
    )
    SELECT t.entity_type FROM types AS t WHERE t.entity_type IS NOT NULL
$$;
