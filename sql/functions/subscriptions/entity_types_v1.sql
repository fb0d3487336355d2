-- The entity types that the journal has events of: one step in the index for each, however many events there are.
CREATE OR REPLACE FUNCTION projections.entity_types_v1()
RETURNS SETOF text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE types AS (
        (SELECT e.entity_type FROM projections.events AS e ORDER BY e.entity_type LIMIT 1)
        UNION ALL
        SELECT (
            SELECT e.entity_type FROM projections.events AS e
            WHERE e.entity_type > t.entity_type ORDER BY e.entity_type LIMIT 1
        )
        FROM types AS t WHERE t.entity_type IS NOT NULL
    )
    SELECT t.entity_type FROM types AS t WHERE t.entity_type IS NOT NULL
$$;
