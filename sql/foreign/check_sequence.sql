-- The sequence that is named ($3), or that a column ($2) of a table ($1) takes its values from: by its default, or as an identity.
SELECT
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) AS name,
    s.seqcache,
    s.seqincrement,
    s.seqcycle,
    has_sequence_privilege(c.oid, 'SELECT') AS readable
FROM pg_catalog.pg_class AS c
INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
INNER JOIN pg_catalog.pg_sequence AS s ON c.oid = s.seqrelid
WHERE
    c.oid = to_regclass($3::text)
    OR ($3 IS NULL AND c.oid IN (
        SELECT d.refobjid
        FROM pg_catalog.pg_attrdef AS f
        INNER JOIN pg_catalog.pg_attribute AS a ON f.adrelid = a.attrelid AND f.adnum = a.attnum
        INNER JOIN pg_catalog.pg_depend AS d ON f.oid = d.objid
        WHERE
            d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
            AND f.adrelid = to_regclass($1::text) AND a.attname = $2::text
        UNION ALL
        SELECT d.objid
        FROM pg_catalog.pg_depend AS d
        INNER JOIN pg_catalog.pg_attribute AS a ON d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
        WHERE d.classid = 'pg_class'::regclass AND d.refobjid = to_regclass($1) AND a.attname = $2 AND d.deptype = 'i'
    ))
