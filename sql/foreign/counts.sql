-- How many events and sources each slice has.
SELECT
    s.slice,
    sum(s.events)::bigint AS events,
    count(*) AS sources
FROM foreign_sources AS s
WHERE $1::text[] IS NULL OR s.entity_type = any($1)
GROUP BY s.slice
