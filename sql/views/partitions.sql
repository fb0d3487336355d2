-- The time partitions of the log with their real bounds, from the catalogue; the default partition has none. One that is
-- in slice order has the index that cluster_partition_v1 makes: dropping that index asks for doing it again.
CREATE OR REPLACE VIEW projections.partitions AS
SELECT
    c.relname::text AS name,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz AS from_timestamp,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz AS to_timestamp,
    pg_total_relation_size(c.oid) AS bytes,
    exists(
        SELECT FROM pg_catalog.pg_index AS x
        WHERE x.indrelid = c.oid AND pg_get_indexdef(x.indexrelid) LIKE '% USING brin (entity_type, slice)%'
    ) AS clustered
FROM pg_catalog.pg_inherits AS i
INNER JOIN pg_catalog.pg_class AS c ON i.inhrelid = c.oid
WHERE i.inhparent = 'projections.events'::regclass;
