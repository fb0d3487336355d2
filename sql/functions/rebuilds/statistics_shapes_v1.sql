-- The extended statistics of a table, each by what it is rather than by its name; place counts those that are alike.
CREATE OR REPLACE FUNCTION projections.statistics_shapes_v1(p_table regclass)
RETURNS TABLE (name text, shape text, place bigint)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT found.name, found.shape, row_number() OVER (PARTITION BY found.shape ORDER BY found.name COLLATE "C")
    FROM (
        SELECT
            s.stxname::text AS name,
            format(
                '%s %s %s', s.stxkind, pg_get_statisticsobjdef_expressions(s.oid),
                (
                    SELECT string_agg(quote_ident(a.attname), ',' ORDER BY a.attname COLLATE "C") FROM pg_attribute AS a
                    WHERE a.attrelid = p_table AND a.attnum = ANY(s.stxkeys)
                )
            ) AS shape
        FROM pg_statistic_ext AS s
        WHERE s.stxrelid = p_table
    ) AS found
$$;
