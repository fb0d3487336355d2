-- A source that has a number more than once.
-- noqa: disable=AL05,ST11
SELECT
    min((foreign_source)::text) AS source,
    min((foreign_number)::bigint) AS number
FROM foreign_rows AS t
WHERE (foreign_deleted) IS NOT TRUE
GROUP BY (foreign_source), (foreign_number)
HAVING count(*) > 1
LIMIT 1 -- noqa: AM09
