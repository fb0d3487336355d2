-- The type of a part of the mapping, also where the table is empty.
-- noqa: disable=AL05,ST11
SELECT format_type(pg_typeof(x.part), NULL)
FROM (SELECT 1) AS one
LEFT JOIN (SELECT (foreign_part) AS part FROM foreign_rows AS t LIMIT 0) AS x ON TRUE -- noqa: AM09
