-- What the schema named by the setting projections.described consists of: a row for each thing, and its definition
-- as PostgreSQL prints it. Time partitions are left out: they come and go. Run it with an empty search_path, so that
-- all names are printed in full.
WITH
described AS (
    SELECT
        n.oid,
        n.nspname,
        n.nspowner,
        n.nspacl
    FROM pg_catalog.pg_namespace AS n WHERE n.nspname = current_setting('projections.described')
),

relations AS (
    SELECT c.*
    FROM pg_catalog.pg_class AS c INNER JOIN described AS d ON c.relnamespace = d.oid
    WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND (NOT c.relispartition OR c.relname IN (
        'events_default', 'matches_default', 'webhook_events_default', 'webhook_attempts_default'
    ))
),

functions AS (
    SELECT p.*
    FROM pg_catalog.pg_proc AS p INNER JOIN described AS d ON p.pronamespace = d.oid
),

grants AS (
    SELECT
        'schema' AS what,
        a.grantee,
        a.privilege_type,
        a.is_grantable
    FROM described AS d CROSS JOIN aclexplode(coalesce(d.nspacl, acldefault('n', d.nspowner))) AS a
    UNION ALL
    SELECT
        'table ' || c.relname AS what,
        a.grantee,
        a.privilege_type,
        a.is_grantable
    FROM relations AS c CROSS JOIN aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
    UNION ALL
    SELECT
        'function ' || p.oid::regprocedure AS what,
        a.grantee,
        a.privilege_type,
        a.is_grantable
    FROM functions AS p CROSS JOIN aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS a
)

SELECT
    'table ' || c.relname AS name,
    concat_ws(
        ' ', 'kind', c.relkind, 'persistence', c.relpersistence, 'identity', c.relreplident, 'row security', c.relrowsecurity,
        pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid),
        array(SELECT o.option FROM unnest(c.reloptions) AS o (option) ORDER BY o.option)
    ) AS definition
FROM relations AS c
UNION ALL
SELECT
    'view ' || c.relname AS name,
    pg_get_viewdef(c.oid) AS definition
FROM relations AS c WHERE c.relkind IN ('v', 'm')
UNION ALL
SELECT
    'column ' || c.relname || '.' || a.attname AS name,
    concat_ws(
        ' ', row_number() OVER (PARTITION BY c.oid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod),
        'COLLATE ' || nullif(a.attcollation, 0)::regcollation::text,
        CASE WHEN a.attnotnull THEN 'NOT NULL' END,
        'DEFAULT ' || pg_get_expr(f.adbin, f.adrelid),
        'IDENTITY ' || nullif(a.attidentity::text, ''), 'GENERATED ' || nullif(a.attgenerated::text, '')
    ) AS definition
FROM relations AS c
INNER JOIN pg_catalog.pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_catalog.pg_attrdef AS f ON a.attrelid = f.adrelid AND a.attnum = f.adnum
UNION ALL
-- Since PostgreSQL 18 NOT NULL is listed here too: the columns show it.
SELECT
    'constraint ' || c.relname || '.' || k.conname AS name,
    pg_get_constraintdef(k.oid) || CASE WHEN k.convalidated THEN '' ELSE ' NOT VALID' END AS definition
FROM relations AS c INNER JOIN pg_catalog.pg_constraint AS k ON c.oid = k.conrelid
WHERE k.contype <> 'n'
UNION ALL
SELECT
    'index ' || i.indexrelid::regclass AS name,
    concat_ws(
        ' ', pg_get_indexdef(i.indexrelid), o.reloptions, CASE WHEN i.indisvalid THEN '' ELSE 'INVALID' END
    ) AS definition
FROM relations AS c
INNER JOIN pg_catalog.pg_index AS i ON c.oid = i.indrelid
INNER JOIN pg_catalog.pg_class AS o ON i.indexrelid = o.oid
UNION ALL
SELECT
    'trigger ' || c.relname || '.' || t.tgname AS name,
    pg_get_triggerdef(t.oid) AS definition
FROM relations AS c INNER JOIN pg_catalog.pg_trigger AS t ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal
UNION ALL
SELECT
    'function ' || p.oid::regprocedure AS name,
    CASE WHEN p.prokind = 'a' THEN 'aggregate' ELSE pg_get_functiondef(p.oid) END AS definition
FROM functions AS p
UNION ALL
-- Grants to roles of the user's own are the user's.
SELECT
    'grant on ' || g.what || ' to ' || coalesce(r.rolname, 'PUBLIC') AS name,
    string_agg(
        g.privilege_type || CASE WHEN g.is_grantable THEN ' with grant option' ELSE '' END, ', ' ORDER BY g.privilege_type
    ) AS definition
FROM grants AS g LEFT JOIN pg_catalog.pg_roles AS r ON g.grantee = r.oid
WHERE g.grantee = 0 OR r.rolname IN ('projections_reader', 'projections_writer', 'projections_worker', 'projections_matcher')
GROUP BY g.what, coalesce(r.rolname, 'PUBLIC')
