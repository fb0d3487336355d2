-- The lowest number that may still be drawn, as a time.
SELECT
    time_of(n.place) AS now,
    0::bigint AS import_id
FROM (
    SELECT least(s.last_value, 9223372036854775806) + CASE WHEN s.is_called THEN 1 ELSE 0 END AS place
    FROM foreign_sequence AS s LIMIT 1 -- noqa: AM09
) AS n
