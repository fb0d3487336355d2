-- The statements that give a clone the settings and comments of its table that CREATE TABLE ... LIKE leaves out, once its indexes and
-- statistics have the names of the table's.
CREATE OR REPLACE FUNCTION projections._table_settings_v1(p_table regclass, p_clone regclass)
RETURNS SETOF text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH indexes AS (
        SELECT i.*, c.relname AS name, n.nspname AS place
        FROM pg_index AS i INNER JOIN pg_class AS c ON i.indexrelid = c.oid
        INNER JOIN pg_class AS k ON k.oid = p_clone INNER JOIN pg_namespace AS n ON k.relnamespace = n.oid
        WHERE i.indrelid = p_table
    ), statistics AS (
        SELECT e.*, n.nspname AS place
        FROM pg_statistic_ext AS e
        INNER JOIN pg_class AS k ON k.oid = p_clone INNER JOIN pg_namespace AS n ON k.relnamespace = n.oid
        WHERE e.stxrelid = p_table
    ), columns AS (
        SELECT a.* FROM pg_attribute AS a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
    )

    SELECT format('ALTER TABLE %s SET (%s%I = %L)', p_clone, o.prefix, split_part(u.o, '=', 1), split_part(u.o, '=', 2))
    FROM pg_class AS c
    LEFT JOIN pg_class AS t ON c.reltoastrelid = t.oid
    CROSS JOIN LATERAL (VALUES ('', c.reloptions), ('toast.', t.reloptions)) AS o (prefix, options)
    CROSS JOIN LATERAL unnest(o.options) AS u (o)
    WHERE c.oid = p_table
    UNION ALL
    SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', p_clone, a.attname, a.attstattarget)
    FROM columns AS a WHERE a.attstattarget >= 0
    UNION ALL
    -- Some servers keep options of their own there, such as pg_attver of Debian's 15.
    SELECT format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', p_clone, a.attname, u.o)
    FROM columns AS a CROSS JOIN LATERAL unnest(a.attoptions) AS u (o) WHERE NOT starts_with(u.o, 'pg_')
    UNION ALL
    SELECT format('ALTER INDEX %I.%I ALTER COLUMN %s SET STATISTICS %s', i.place, i.name, a.attnum, a.attstattarget)
    FROM indexes AS i INNER JOIN pg_attribute AS a ON i.indexrelid = a.attrelid WHERE a.attstattarget >= 0
    UNION ALL
    SELECT format('ALTER STATISTICS %I.%I SET STATISTICS %s', s.place, s.stxname, s.stxstattarget) FROM statistics AS s WHERE s.stxstattarget >= 0
    UNION ALL
    SELECT format('ALTER STATISTICS %I.%I OWNER TO %I', s.place, s.stxname, pg_get_userbyid(s.stxowner))
    FROM statistics AS s WHERE pg_get_userbyid(s.stxowner) <> current_user
    UNION ALL
    -- The copy would be valid.
    SELECT format('ALTER TABLE %s DROP CONSTRAINT %I, ADD CONSTRAINT %2$I %3$s', p_clone, c.conname, pg_get_constraintdef(c.oid))
    FROM pg_constraint AS c WHERE c.conrelid = p_table AND c.contype = 'c' AND NOT c.convalidated
    UNION ALL
    SELECT format('ALTER TABLE %s CLUSTER ON %I', p_clone, i.name) FROM indexes AS i WHERE i.indisclustered
    UNION ALL
    SELECT format(
        'ALTER TABLE %s REPLICA IDENTITY %s', p_clone,
        CASE c.relreplident
            WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE format('USING INDEX %I', (SELECT i.name FROM indexes AS i WHERE i.indisreplident))
        END
    )
    FROM pg_class AS c WHERE c.oid = p_table AND c.relreplident <> 'd'
    UNION ALL
    SELECT format('ALTER TABLE %s OF %s', p_clone, c.reloftype::regtype) FROM pg_class AS c WHERE c.oid = p_table AND c.reloftype <> 0
    UNION ALL
    SELECT format('COMMENT ON TABLE %s IS %L', p_clone, t.comment)
    FROM (SELECT obj_description(p_table, 'pg_class') AS comment) AS t WHERE t.comment IS NOT NULL
    UNION ALL
    SELECT format('COMMENT ON INDEX %I.%I IS %L', i.place, i.name, t.comment)
    FROM indexes AS i CROSS JOIN LATERAL (SELECT obj_description(i.indexrelid, 'pg_class') AS comment) AS t WHERE t.comment IS NOT NULL
    UNION ALL
    SELECT format('COMMENT ON STATISTICS %I.%I IS %L', s.place, s.stxname, t.comment)
    FROM statistics AS s CROSS JOIN LATERAL (SELECT obj_description(s.oid, 'pg_statistic_ext') AS comment) AS t WHERE t.comment IS NOT NULL
    UNION ALL
    SELECT format('COMMENT ON CONSTRAINT %I ON %s IS %L', c.conname, p_clone, t.comment)
    FROM pg_constraint AS c CROSS JOIN LATERAL (SELECT obj_description(c.oid, 'pg_constraint') AS comment) AS t
    WHERE c.conrelid = p_table AND c.contype <> 'f' AND t.comment IS NOT NULL
$$;
