-- The entity types of the table: one step in an index that begins with them for each, if there is one.
WITH RECURSIVE types AS (
    (SELECT e.entity_type FROM foreign_events AS e ORDER BY e.entity_type LIMIT 1)
    UNION ALL
    SELECT (SELECT e.entity_type FROM foreign_events AS e WHERE e.entity_type > t.entity_type ORDER BY e.entity_type LIMIT 1)
    FROM types AS t WHERE t.entity_type IS NOT NULL
)

SELECT t.entity_type FROM types AS t WHERE t.entity_type IS NOT NULL
