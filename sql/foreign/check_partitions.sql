-- The tables that hold the rows of a table: its partitions, or itself.
SELECT
    n.nspname::text AS schema,
    c.relname::text AS name
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE
    (c.oid = to_regclass($1::text) AND c.relkind = 'r')
    OR c.oid IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(to_regclass($1::text)) AS t WHERE t.isleaf)
ORDER BY n.nspname, c.relname
