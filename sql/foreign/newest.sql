-- Of each entity type the time of the newest event after one that is given, and where the type is NULL of all of them.
SELECT
    array(
        SELECT (
            SELECT time_of(e.place) FROM foreign_events AS e
            WHERE
                e.place > place_of(t.after) AND e.place <= place_of(timestamptz '9998-12-31 00:00:00+00') -- no page reaches farther
                AND (t.entity_type IS NULL OR e.entity_type = t.entity_type)
            ORDER BY e.place DESC LIMIT 1
        )
        FROM unnest($2::text[], $3::timestamptz[]) WITH ORDINALITY AS t (entity_type, after, ordinal)
        WHERE $1::bigint IS NOT NULL
        ORDER BY t.ordinal
    ) AS times
