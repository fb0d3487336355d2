-- What of a table must not change while a clone of it is filled, or the swap would undo it: owner, grants, settings, columns,
-- constraints, indexes, statistics.
CREATE OR REPLACE FUNCTION projections._table_shape_v1(p_table regclass)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT md5(string_agg(part.text, E'\n' ORDER BY part.text COLLATE "C")) FROM (
        SELECT format(
            '%s %s %s %s %s %s %s %s %s %s %s', a.attname, a.atttypid, a.atttypmod, a.attcollation, a.attnotnull, a.attidentity,
            a.attgenerated, a.attstorage, a.attstattarget,
            (SELECT array_agg(o.option) FROM unnest(a.attoptions) AS o (option) WHERE NOT starts_with(o.option, 'pg_')),
            pg_get_expr(d.adbin, d.adrelid)
        ) AS text
        FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT format('%s %s', c.conname, pg_get_constraintdef(c.oid)) FROM pg_constraint AS c
        -- A foreign key has others of its own for each partition of the table that it refers to.
        WHERE c.conrelid = p_table
        AND NOT EXISTS (SELECT FROM pg_constraint AS p WHERE p.oid = c.conparentid AND p.conrelid = p_table)
        UNION ALL
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i WHERE i.indrelid = p_table
        UNION ALL
        SELECT format('%s %s', s.name, s.shape) FROM projections._index_shapes_v1(p_table) AS s WHERE s.kind = 'STATISTICS'
        UNION ALL
        SELECT format('%s %s', c.relowner, (SELECT array_agg(o ORDER BY o COLLATE "C") FROM unnest(c.reloptions) AS u (o)))
        FROM pg_class AS c WHERE c.oid = p_table
        UNION ALL
        -- Who may do what, by whomever it was granted: no grants at all are the same as those that an owner has anyway.
        SELECT DISTINCT format('%s %s %s', g.grantee, g.privilege_type, g.is_grantable)
        FROM pg_class AS c CROSS JOIN LATERAL aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS g
        WHERE c.oid = p_table
        UNION ALL
        SELECT DISTINCT format('%s %s %s %s', a.attname, g.grantee, g.privilege_type, g.is_grantable)
        FROM pg_attribute AS a CROSS JOIN LATERAL aclexplode(a.attacl) AS g
        WHERE a.attrelid = p_table AND NOT a.attisdropped
    ) AS part
$$;
