-- Why another table cannot simply take the place of this one: what would stay with the old table, or be lost. Given the columns that
-- the Table declares, others would lose their values; of a table without a declaration, identity columns that are no key.
CREATE OR REPLACE FUNCTION projections._unfit_for_rename_v1(p_table regclass, p_columns text[] DEFAULT NULL)
RETURNS text[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH dependable AS (
        SELECT 'pg_class'::regclass AS classid, p_table::oid AS oid
        UNION ALL
        -- Its row type, and arrays of it.
        SELECT 'pg_type'::regclass AS classid, y.oid
        FROM pg_type AS r INNER JOIN pg_type AS y ON y.oid IN (r.oid, r.typarray) WHERE r.typrelid = p_table
    )

    SELECT coalesce(array_agg(found.reason ORDER BY found.reason COLLATE "C"), '{}') FROM (
        SELECT DISTINCT
            CASE WHEN v.relkind = 'm' THEN 'materialized view ' ELSE 'view ' END || v.oid::regclass::text || ' reads it' AS reason
        FROM pg_depend AS d
        INNER JOIN pg_rewrite AS r ON d.objid = r.oid
        INNER JOIN pg_class AS v ON r.ev_class = v.oid
        WHERE d.classid = 'pg_rewrite'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p_table
        AND v.oid <> p_table
        UNION ALL
        SELECT format('foreign key %I of %s refers to it', c.conname, c.conrelid::regclass)
        FROM pg_constraint AS c WHERE c.contype = 'f' AND c.confrelid = p_table AND c.conrelid <> p_table
        UNION ALL
        SELECT format('trigger %I is on it', t.tgname) FROM pg_trigger AS t WHERE t.tgrelid = p_table AND NOT t.tgisinternal
        UNION ALL
        SELECT format('rule %I is on it', r.rulename) FROM pg_rewrite AS r WHERE r.ev_class = p_table AND r.rulename <> '_RETURN'
        UNION ALL
        SELECT 'it has row security' FROM pg_class AS c
        WHERE c.oid = p_table AND (c.relrowsecurity OR EXISTS (SELECT FROM pg_policy AS p WHERE p.polrelid = p_table))
        UNION ALL
        SELECT 'it is unlogged, and the new one would be logged' FROM pg_class AS c WHERE c.oid = p_table AND c.relpersistence = 'u'
        UNION ALL
        SELECT format('subscription %I writes to it', s.subname)
        FROM pg_subscription_rel AS r INNER JOIN pg_subscription AS s ON r.srsubid = s.oid WHERE r.srrelid = p_table
        UNION ALL
        SELECT 'it is partitioned, a partition, or inherits' FROM pg_class AS c
        WHERE c.oid = p_table AND (
            c.relkind = 'p' OR c.relispartition
            OR EXISTS (SELECT FROM pg_inherits AS i WHERE p_table IN (i.inhrelid, i.inhparent))
        )
        UNION ALL
        SELECT format('sequence %s belongs to a column of it', d.objid::regclass) FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = p_table
        AND d.deptype = 'a' AND d.refobjsubid > 0 AND (SELECT c.relkind FROM pg_class AS c WHERE c.oid = d.objid) = 'S'
        UNION ALL
        SELECT format('column %I is not one that its Table declares, and would lose its values', a.attname)
        FROM pg_attribute AS a
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
        AND a.attname <> ALL (p_columns)
        UNION ALL
        SELECT format('identity column %I would be numbered again', a.attname) FROM pg_attribute AS a
        WHERE a.attrelid = p_table AND a.attidentity <> '' AND NOT a.attisdropped AND p_columns IS NULL
        AND a.attnum <> ALL (coalesce(projections._only_key_v1(p_table), '{}'))
        UNION ALL
        SELECT format('publication %I names it', p.pubname)
        FROM pg_publication_rel AS r INNER JOIN pg_publication AS p ON r.prpubid = p.oid WHERE r.prrelid = p_table
        UNION ALL
        -- One of all tables, or of all of a schema, publishes the new table, too, but not the rows that it comes with: of
        -- those, subscribers would have what the old table had.
        SELECT format('publication %I would not publish the rows of a new table in its place', p.pubname)
        FROM pg_publication_tables AS p
        INNER JOIN pg_publication AS b ON p.pubname = b.pubname
        INNER JOIN pg_class AS c ON p.tablename = c.relname
        INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid AND p.schemaname = n.nspname
        WHERE c.oid = p_table
        AND NOT EXISTS (SELECT FROM pg_publication_rel AS r WHERE r.prpubid = b.oid AND r.prrelid = p_table)
        UNION ALL
        -- The body of one that is not parsed (AS '...') finds a table by its name: the new one.
        SELECT DISTINCT format('function %s uses it', d.objid::regprocedure)
        FROM pg_depend AS d INNER JOIN dependable AS t ON d.refclassid = t.classid AND d.refobjid = t.oid
        WHERE d.classid = 'pg_proc'::regclass
        UNION ALL
        SELECT DISTINCT format('column %I of %s has its row type', a.attname, a.attrelid::regclass)
        FROM pg_depend AS d
        INNER JOIN dependable AS t ON d.refclassid = t.classid AND d.refobjid = t.oid
        INNER JOIN pg_attribute AS a ON d.objid = a.attrelid AND d.objsubid = a.attnum
        WHERE d.classid = 'pg_class'::regclass AND t.classid = 'pg_type'::regclass
        UNION ALL
        SELECT DISTINCT format('policy %I of %s uses it', p.polname, p.polrelid::regclass)
        FROM pg_depend AS d
        INNER JOIN dependable AS t ON d.refclassid = t.classid AND d.refobjid = t.oid
        INNER JOIN pg_policy AS p ON d.objid = p.oid
        WHERE d.classid = 'pg_policy'::regclass AND p.polrelid <> p_table
        UNION ALL
        -- Whatever else there is, or will be in a later version of PostgreSQL.
        SELECT DISTINCT format('%s uses it', pg_describe_object(d.classid, d.objid, 0))
        FROM pg_depend AS d INNER JOIN dependable AS t ON d.refclassid = t.classid AND d.refobjid = t.oid
        WHERE d.deptype = 'n' AND d.classid::regclass::text <> ALL (ARRAY[
            'pg_rewrite', 'pg_constraint', 'pg_trigger', 'pg_policy', 'pg_proc', 'pg_class', 'pg_publication_rel', 'pg_attrdef',
            'pg_statistic_ext'
        ])
    ) AS found
$$;
