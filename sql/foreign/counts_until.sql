-- How many events each slice has, from one slice to another and up to a time: of each source up to its last event of that time or an
-- earlier one, also those before it that are stamped later.
SELECT
    s.slice,
    sum(s.events)::bigint AS events
FROM (
    SELECT
        slice_of(s.source_id, s.slice) AS slice,
        s.events
    FROM (
        SELECT
            min(e.source_id) AS source_id,
            min(e.stored_slice) AS slice,
            count(*) AS events
        FROM foreign_events AS e
        INNER JOIN (
            SELECT
                l.source,
                max(l.number) AS number
            FROM foreign_events AS l
            WHERE l.place <= place_of($4)
            GROUP BY l.source
        ) AS l ON e.source = l.source AND e.number <= l.number
        WHERE ($1::text[] IS NULL OR e.entity_type = any($1))
        GROUP BY e.source
    ) AS s
) AS s
WHERE s.slice BETWEEN $2::integer AND $3::integer
GROUP BY s.slice
