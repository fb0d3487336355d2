-- Everything that the catalogue holds of a table but its rows: of the table itself and of each column, constraint, index and statistics
-- of it, by what it is called in both of two tables that are to be alike. Whole rows of the catalogue, so that what a new version of
-- PostgreSQL knows is among them; without numbers of objects and what changes by itself, for which there are definitions in text.
-- tests/integration/spark/test_rebuild_facts.py says why each column is left out.
CREATE OR REPLACE FUNCTION projections._table_facts_v1(p_table regclass)
RETURNS TABLE (part text, facts jsonb)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH class AS (
        SELECT
            c.oid, c.relname, c.relkind, c.relowner, c.relacl, c.reltoastrelid,
            to_jsonb(c) - ARRAY[
                'oid', 'relname', 'relnamespace', 'reltype', 'relfilenode', 'relpages', 'reltuples', 'relallvisible', 'relallfrozen',
                'reltoastrelid', 'relhasindex', 'relnatts', 'relhasrules', 'relhastriggers', 'relhassubclass', 'relrewrite',
                'relfrozenxid', 'relminmxid', 'relacl', 'reloptions'
            ] || jsonb_build_object(
                'reloptions', (SELECT jsonb_agg(u.o ORDER BY u.o COLLATE "C") FROM unnest(c.reloptions) AS u (o)),
                'comment', obj_description(c.oid, 'pg_class'),
                'extensions', (
                    SELECT jsonb_agg(d.refobjid::bigint ORDER BY d.refobjid) FROM pg_depend AS d
                    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_extension'::regclass
                ),
                'labels', (
                    SELECT jsonb_agg(ARRAY[l.objsubid::text, l.provider, l.label] ORDER BY l.objsubid, l.provider)
                    FROM pg_seclabel AS l WHERE l.classoid = 'pg_class'::regclass AND l.objoid = c.oid
                )
            ) AS facts
        FROM pg_class AS c
        WHERE c.oid = p_table OR c.oid IN (SELECT i.indexrelid FROM pg_index AS i WHERE i.indrelid = p_table)
    )

    SELECT 'table', c.facts || jsonb_build_object(
        -- Who may do what, by whomever it was granted: no grants at all are the same as those that an owner has anyway.
        'relacl', (
            SELECT jsonb_agg(DISTINCT ARRAY[g.grantee::text, g.privilege_type, g.is_grantable::text])
            FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS g
        ),
        'toast', (
            SELECT jsonb_agg(u.o ORDER BY u.o COLLATE "C") FROM pg_class AS t CROSS JOIN LATERAL unnest(t.reloptions) AS u (o)
            WHERE t.oid = c.reltoastrelid
        )
    )
    FROM class AS c WHERE c.oid = p_table
    UNION ALL
    SELECT
        format('column %I', a.attname),
        to_jsonb(a) - ARRAY[
            'attrelid', 'attnum', 'attcacheoff', 'atthasmissing', 'attmissingval', 'attisdropped', 'attacl', 'attoptions',
            'attndims'  -- means nothing, and is not copied
        ] || jsonb_build_object(
            'place', row_number() OVER (ORDER BY a.attnum),
            'default', (SELECT pg_get_expr(d.adbin, d.adrelid) FROM pg_attrdef AS d WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum),
            'comment', col_description(a.attrelid, a.attnum),
            'attacl', (
                SELECT jsonb_agg(DISTINCT ARRAY[g.grantee::text, g.privilege_type, g.is_grantable::text]) FROM aclexplode(a.attacl) AS g
            ),
            -- Some servers keep options of their own there, such as pg_attver of Debian's 15.
            'attoptions', (
                SELECT jsonb_agg(u.o ORDER BY u.o COLLATE "C") FROM unnest(a.attoptions) AS u (o) WHERE NOT starts_with(u.o, 'pg_')
            )
        )
    FROM pg_attribute AS a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT
        format(CASE c.contype WHEN 'f' THEN 'foreign key %I' ELSE 'constraint %I' END, c.conname),
        to_jsonb(c) - ARRAY[
            'oid', 'conname', 'connamespace', 'conrelid', 'contypid', 'conindid', 'conparentid', 'confrelid', 'conkey', 'confkey',
            'conpfeqop', 'conppeqop', 'conffeqop', 'confdelsetcols', 'conexclop', 'conbin'
        ] || jsonb_build_object('definition', pg_get_constraintdef(c.oid), 'comment', obj_description(c.oid, 'pg_constraint'))
    FROM pg_constraint AS c
    -- A foreign key has others of its own for each partition of the table that it refers to.
    WHERE c.conrelid = p_table
    AND NOT EXISTS (SELECT FROM pg_constraint AS p WHERE p.oid = c.conparentid AND p.conrelid = p_table)
    UNION ALL
    SELECT
        format('index %I', c.relname),
        c.facts || to_jsonb(i) - ARRAY['indexrelid', 'indrelid', 'indkey', 'indexprs', 'indpred', 'indcheckxmin']
        || jsonb_build_object(
            'shape', s.shape,
            'attstattarget', (
                SELECT jsonb_agg(nullif(a.attstattarget, -1) ORDER BY a.attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid
            )
        )
    FROM pg_index AS i INNER JOIN class AS c ON i.indexrelid = c.oid
    LEFT JOIN projections._index_shapes_v1(p_table) AS s ON s.kind = 'INDEX' AND c.relname = s.name
    WHERE i.indrelid = p_table
    UNION ALL
    SELECT
        format('statistics %I', e.stxname),
        to_jsonb(e) - ARRAY['oid', 'stxname', 'stxnamespace', 'stxrelid', 'stxkeys', 'stxexprs']
        || jsonb_build_object('shape', s.shape, 'comment', obj_description(e.oid, 'pg_statistic_ext'))
    FROM pg_statistic_ext AS e
    LEFT JOIN projections._index_shapes_v1(p_table) AS s ON s.kind = 'STATISTICS' AND e.stxname = s.name
    WHERE e.stxrelid = p_table
$$;
