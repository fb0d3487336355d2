-- How many events and sources each slice has.
SELECT
    e.slice,
    sum(e.events)::bigint AS events,
    count(*) AS sources
FROM (
    SELECT
        e.source_id,
        e.slice,
        count(*) AS events
    FROM foreign_events AS e
    WHERE $1::text[] IS NULL OR e.entity_type = any($1)
    GROUP BY e.source_id, e.slice
) AS e
GROUP BY e.slice
