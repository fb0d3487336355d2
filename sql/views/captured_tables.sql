-- The tables whose changes become events, as their triggers say: a dropped table leaves nothing behind, and a dump brings
-- all back. Partitions made since the table was captured miss its triggers: statements that name them have no events.
CREATE OR REPLACE VIEW projections.captured_tables AS
SELECT
    t.tgrelid::regclass AS relation,
    n.nspname::text AS schema_name,
    c.relname::text AS table_name,
    s.settings ->> 'entity_type' AS entity_type,
    (t.tgtype::integer & 4) > 0 AS on_insert,
    (t.tgtype::integer & 16) > 0 AS on_update,
    (t.tgtype::integer & 8) > 0 AS on_delete,
    s.settings ->> 'serializer' AS serializer,
    (
        SELECT count(*) FROM pg_partition_tree(t.tgrelid) AS p
        WHERE NOT EXISTS (
            SELECT FROM pg_catalog.pg_trigger AS o WHERE p.relid = o.tgrelid AND t.tgfoid = o.tgfoid
        )
    ) AS partitions_missed
FROM pg_catalog.pg_trigger AS t
INNER JOIN pg_catalog.pg_class AS c ON t.tgrelid = c.oid
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
CROSS JOIN
    -- The one argument of the trigger, a zero byte at its end. Of other triggers it may be anything, so it is not read.
    LATERAL (
        SELECT
            CASE
                WHEN t.tgfoid = 'projections._append_changes_v1'::regproc
                    THEN convert_from(substr(t.tgargs, 1, length(t.tgargs) - 1), 'UTF8')::json
            END AS settings
    ) AS s
WHERE NOT (s.settings ->> 'partition')::boolean;
