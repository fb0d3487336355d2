-- The time partitions of all tables in partition_settings with their real bounds, from the catalogue: a bound that is not there is
-- NULL, and the default partition has none. One that is in slice order has the index that _cluster_partition_v1 makes: dropping that
-- index asks for doing it again. The rows are an estimate, of ANALYZE or of the statistics, whichever has seen more.
CREATE OR REPLACE VIEW projections.partitions AS
SELECT
    p.relname::text AS table_name,
    c.relname::text AS name,
    b.from_timestamp,
    b.to_timestamp,
    pg_total_relation_size(c.oid) AS bytes,
    exists(
        SELECT FROM pg_catalog.pg_index AS x
        WHERE x.indrelid = c.oid AND pg_get_indexdef(x.indexrelid) LIKE '% USING brin (entity_type, slice)%'
    ) AS clustered,
    c.oid = t.partdefid AS is_default,
    c.oid AS relation,
    greatest(c.reltuples::bigint, pg_stat_get_live_tuples(c.oid), 0) AS estimated_rows
FROM pg_catalog.pg_class AS p
INNER JOIN pg_catalog.pg_partitioned_table AS t ON p.oid = t.partrelid
INNER JOIN pg_catalog.pg_inherits AS i ON p.oid = i.inhparent
INNER JOIN pg_catalog.pg_class AS c ON i.inhrelid = c.oid
CROSS JOIN LATERAL projections._partition_bounds_v1(c.oid) AS b
WHERE p.relnamespace = 'projections'::regnamespace AND p.relname IN (SELECT s.table_name FROM projections.partition_settings AS s);
