-- The indexes of a table that hold all of its rows: their columns in their order, NULL for an expression, and whether they are unique.
SELECT
    i.indisunique AS is_unique,
    array(
        SELECT a.attname::text
        FROM generate_series(0, i.indnkeyatts - 1) AS k (n)
        LEFT JOIN pg_catalog.pg_attribute AS a ON i.indrelid = a.attrelid AND i.indkey[k.n] = a.attnum
        ORDER BY k.n
    ) AS columns
FROM pg_catalog.pg_index AS i
WHERE i.indrelid = to_regclass($1::text) AND i.indisvalid AND i.indpred IS NULL
