-- The entity types of the table, by an index on slice and entity type: one step in it for each slice and type.
SELECT DISTINCT t.entity_type
FROM generate_series(0, 1023) AS s (slice)
CROSS JOIN LATERAL (
    WITH RECURSIVE types AS (
        (SELECT e.entity_type FROM foreign_events AS e WHERE e.slice = s.slice ORDER BY e.entity_type LIMIT 1)
        UNION ALL
        SELECT (
            SELECT e.entity_type FROM foreign_events AS e
            WHERE e.slice = s.slice AND e.entity_type > t.entity_type
            ORDER BY e.entity_type LIMIT 1
        )
        FROM types AS t WHERE t.entity_type IS NOT NULL
    )

    SELECT t.entity_type FROM types AS t WHERE t.entity_type IS NOT NULL
) AS t
