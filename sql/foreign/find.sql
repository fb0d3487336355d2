-- The event of an id, or no row; of a log without ids of its own none is found.
SELECT
    foreign_columns,
    FALSE AS more
FROM foreign_events AS e
WHERE e.event_id = $1::uuid
LIMIT 1 -- noqa: AM09
