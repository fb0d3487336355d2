-- The tables whose changes become events, as their triggers say: a dropped table leaves nothing behind, and a dump brings
-- all back. Partitions made since the table was captured miss its triggers: statements that name them have no events.
-- problems tells which other writes have none: by triggers that were disabled or dropped since; or are refused, by a key of another type.
CREATE OR REPLACE VIEW projections.captured_tables AS
WITH capturing AS (
    SELECT
        t.tgrelid,
        max(s.settings::text)::json AS settings,
        bit_or(t.tgtype::integer) AS operations
    FROM pg_catalog.pg_trigger AS t
    CROSS JOIN
        -- The one argument of the trigger, a zero byte at its end. Of other triggers it may be anything, so it is not read.
        LATERAL (
            SELECT
                CASE
                    WHEN t.tgfoid IN ('projections._append_changes_v1'::regproc, 'projections._describe_changes_v1'::regproc)
                        THEN convert_from(substr(t.tgargs, 1, length(t.tgargs) - 1), 'UTF8')::json
                END AS settings
        ) AS s
    WHERE s.settings IS NOT NULL
    GROUP BY t.tgrelid
)

SELECT
    t.tgrelid::regclass AS relation,
    n.nspname::text AS schema_name,
    c.relname::text AS table_name,
    t.settings ->> 'entity_type' AS entity_type,
    (t.operations & 4) > 0 AS on_insert,
    (t.operations & 16) > 0 AS on_update,
    (t.operations & 8) > 0 AS on_delete,
    t.settings ->> 'serializer' AS serializer,
    (
        SELECT count(*) FROM pg_partition_tree(t.tgrelid) AS p
        WHERE NOT EXISTS (SELECT FROM capturing AS o WHERE p.relid = o.tgrelid)
    ) AS partitions_missed,
    (
        SELECT coalesce(array_agg(found.problem ORDER BY found.problem COLLATE "C"), '{}')
        FROM (
            SELECT
                format('trigger %s of %I.%I %s', w.name, q.nspname, r.relname, CASE g.tgenabled
                    WHEN 'D' THEN 'is disabled'
                    WHEN 'R' THEN 'fires on replicas only'
                    ELSE 'is missing'
                END) AS problem
            FROM capturing AS o
            INNER JOIN pg_catalog.pg_class AS r ON o.tgrelid = r.oid
            INNER JOIN pg_catalog.pg_namespace AS q ON r.relnamespace = q.oid
            CROSS JOIN
                LATERAL (
                    VALUES
                    ('projections_capture_1_insert', o.operations & 4),
                    ('projections_capture_1_update', o.operations & 16),
                    ('projections_capture_1_delete', o.operations & 8),
                    ('projections_capture_2_append', 1),
                    ('projections_capture_truncate', o.operations & 8),
                    (
                        'zz_projections_capture_moves',
                        CASE
                            WHEN NOT (o.settings ->> 'partition')::boolean
                                THEN (o.operations & 16) * json_array_length(o.settings -> 'moved_by')
                        END
                    )
                ) AS w (name, wanted)
            LEFT JOIN pg_catalog.pg_trigger AS g ON o.tgrelid = g.tgrelid AND w.name = g.tgname
            WHERE
                (o.tgrelid = t.tgrelid OR o.tgrelid IN (SELECT p.relid FROM pg_partition_tree(t.tgrelid) AS p))
                AND w.wanted > 0 AND coalesce(g.tgenabled, 'D') IN ('D', 'R')
            UNION ALL
            SELECT
                format(
                    'its key was of other types: (%s) was (%s), and writes are refused', array_to_string(k.types, ', '),
                    (SELECT string_agg(v.type, ', ') FROM json_array_elements_text(t.settings -> 'key_types') AS v (type))
                )
            FROM projections._key_types_v1(t.tgrelid) AS k (types)
            WHERE t.settings -> 'key_types' IS NOT NULL AND to_json(k.types)::text <> (t.settings -> 'key_types')::text
        ) AS found
    ) AS problems
FROM capturing AS t
INNER JOIN pg_catalog.pg_class AS c ON t.tgrelid = c.oid
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
WHERE NOT (t.settings ->> 'partition')::boolean;
