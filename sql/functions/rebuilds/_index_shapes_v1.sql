-- The indexes and extended statistics of a table, each by what it is rather than by its name; place counts those that are alike.
CREATE OR REPLACE FUNCTION projections._index_shapes_v1(p_table regclass)
RETURNS TABLE (kind text, name text, shape text, place bigint)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT found.kind, found.name, found.shape, row_number() OVER (PARTITION BY found.kind, found.shape ORDER BY found.name COLLATE "C")
    FROM (
        SELECT
            'INDEX' AS kind, c.relname::text AS name,
            format(
                '%s %s %s %s %s %s %s %s %s %s', c.relam, i.indisunique, i.indisprimary, i.indisexclusion, i.indclass,
                i.indoption, i.indcollation, c.reloptions, pg_get_expr(i.indpred, i.indrelid),
                (SELECT string_agg(pg_get_indexdef(c.oid, k.n, TRUE), ',' ORDER BY k.n) FROM generate_series(1, i.indnatts) AS k (n))
            ) AS shape
        FROM pg_index AS i INNER JOIN pg_class AS c ON i.indexrelid = c.oid
        WHERE i.indrelid = p_table
        UNION ALL
        SELECT
            'STATISTICS', s.stxname::text,
            format(
                '%s %s %s', s.stxkind, pg_get_statisticsobjdef_expressions(s.oid),
                (
                    SELECT string_agg(quote_ident(a.attname), ',' ORDER BY a.attname COLLATE "C") FROM pg_attribute AS a
                    WHERE a.attrelid = p_table AND a.attnum = ANY(s.stxkeys)
                )
            )
        FROM pg_statistic_ext AS s
        WHERE s.stxrelid = p_table
    ) AS found
$$;
