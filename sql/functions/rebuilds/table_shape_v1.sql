-- What of a table must not change while a clone of it is filled: columns, constraints, indexes.
CREATE OR REPLACE FUNCTION projections.table_shape_v1(p_table regclass)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT md5(string_agg(part.text, E'\n' ORDER BY part.text COLLATE "C")) FROM (
        SELECT format('%s %s %s %s %s', a.attname, a.atttypid, a.atttypmod, a.attnotnull, pg_get_expr(d.adbin, d.adrelid)) AS text
        FROM pg_attribute AS a LEFT JOIN pg_attrdef AS d ON a.attrelid = d.adrelid AND a.attnum = d.adnum
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT format('%s %s', c.conname, pg_get_constraintdef(c.oid)) FROM pg_constraint AS c WHERE c.conrelid = p_table
        UNION ALL
        SELECT pg_get_indexdef(i.indexrelid) FROM pg_index AS i WHERE i.indrelid = p_table
    ) AS part
$$;
