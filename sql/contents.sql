-- What DROP SCHEMA ... CASCADE takes: the tables, partitions within theirs, and what depends on them from outside.
WITH
relations AS (
    SELECT
        c.oid,
        c.relkind,
        c.relname,
        c.relispartition
    FROM pg_catalog.pg_class AS c
    WHERE c.relnamespace = 'projections'::regnamespace
),

targets AS (
    SELECT
        'pg_class'::regclass AS classid,
        c.oid
    FROM relations AS c
    UNION ALL
    SELECT
        'pg_proc'::regclass AS classid,
        f.oid
    FROM pg_catalog.pg_proc AS f
    WHERE f.pronamespace = 'projections'::regnamespace
),

-- A view depends through its rule.
dependents AS (
    SELECT
        coalesce(v.relnamespace, k.connamespace, p.pronamespace) AS namespace,
        CASE
            WHEN v.oid IS NULL THEN pg_describe_object(d.classid, d.objid, 0)
            ELSE pg_describe_object('pg_class'::regclass, v.oid, 0)
        END AS name
    FROM pg_catalog.pg_depend AS d
    INNER JOIN targets AS t ON d.refclassid = t.classid AND d.refobjid = t.oid
    LEFT JOIN pg_catalog.pg_rewrite AS w ON d.classid = 'pg_rewrite'::regclass AND d.objid = w.oid
    LEFT JOIN pg_catalog.pg_class AS v ON w.ev_class = v.oid
    LEFT JOIN pg_catalog.pg_constraint AS k ON d.classid = 'pg_constraint'::regclass AND d.objid = k.oid
    LEFT JOIN pg_catalog.pg_proc AS p ON d.classid = 'pg_proc'::regclass AND d.objid = p.oid
)

SELECT
    c.relname::text AS name,
    TRUE AS is_table
FROM relations AS c
WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
UNION
SELECT
    d.name,
    FALSE AS is_table
FROM dependents AS d
WHERE
    d.namespace <> 'projections'::regnamespace
    AND d.namespace IS DISTINCT FROM to_regnamespace('projections_conditions')
ORDER BY is_table DESC, name ASC
