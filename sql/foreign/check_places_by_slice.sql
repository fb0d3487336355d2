-- As check_places.sql, by an index on slice, entity type and place; and how many events are in slices that there are not.
SELECT
    (SELECT count(*) FROM foreign_events AS e WHERE e.slice < 0)
    + (SELECT count(*) FROM foreign_events AS e WHERE e.slice > 1023)
    + (
        SELECT coalesce(sum(o.events), 0)
        FROM foreign_types AS t
        CROSS JOIN generate_series(0, 1023) AS s (slice)
        CROSS JOIN LATERAL (
            SELECT
                (
                    SELECT count(*) FROM foreign_events AS e
                    WHERE e.entity_type = t.entity_type AND e.slice = s.slice AND e.place < place_of(timestamptz 'epoch')
                )
                + (
                    SELECT count(*) FROM foreign_events AS e
                    WHERE
                        e.entity_type = t.entity_type AND e.slice = s.slice
                        AND e.place > place_of(timestamptz '9998-12-31 00:00:00+00')
                ) AS events
        ) AS o
    )::bigint AS events
