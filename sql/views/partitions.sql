-- The time partitions of the log with their real bounds, from the catalogue; the default partition has none.
CREATE OR REPLACE VIEW projections.partitions AS
SELECT
    c.relname::text AS name,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''([^'']+)''\)'))[1]::timestamptz AS from_timestamp,
    (regexp_match(pg_get_expr(c.relpartbound, c.oid), 'TO \(''([^'']+)''\)'))[1]::timestamptz AS to_timestamp,
    pg_total_relation_size(c.oid) AS bytes
FROM pg_catalog.pg_inherits AS i
INNER JOIN pg_catalog.pg_class AS c ON i.inhrelid = c.oid
WHERE i.inhparent = 'projections.events'::regclass;
