-- As newest.sql, by an index on slice, entity type and place.
SELECT
    array(
        SELECT (
            SELECT max(time_of(newest.place))
            FROM
                unnest(
                    CASE
                        WHEN t.entity_type IS NULL THEN array(SELECT t.entity_type FROM foreign_types AS t) ELSE ARRAY[t.entity_type]
                    END
                ) AS k (entity_type)
            CROSS JOIN generate_series(0, 1023) AS s (slice)
            CROSS JOIN LATERAL (
                SELECT e.place FROM foreign_events AS e
                WHERE
                    e.entity_type = k.entity_type AND e.slice = s.slice AND e.place > place_of(t.after)
                    AND e.place <= place_of(timestamptz '9998-12-31 00:00:00+00') -- no page reaches farther
                ORDER BY e.place DESC LIMIT 1
            ) AS newest
        )
        FROM unnest($2::text[], $3::timestamptz[]) WITH ORDINALITY AS t (entity_type, after, ordinal)
        WHERE $1::bigint IS NOT NULL
        ORDER BY t.ordinal
    ) AS times
