-- Gives the indexes and statistics of a clone the names that they have in its table: the database has given names of its
-- own. Those that are alike are paired in the order of their names.
CREATE OR REPLACE FUNCTION projections._copy_names_v1(p_table regclass, p_clone regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _schema CONSTANT regnamespace := (SELECT c.relnamespace FROM pg_class AS c WHERE c.oid = p_clone);
    _renames text[];
    _statement text;
BEGIN
    -- The name of one may be that of another until that has its own: all give theirs up first.
    SELECT array_agg(found.statement ORDER BY found.step) INTO _renames
    FROM (
        SELECT t.kind, t.name AS final, c.name AS given, format('_renamed_%s', row_number() OVER ()) AS temporary
        FROM projections._index_shapes_v1(p_table) AS t
        INNER JOIN projections._index_shapes_v1(p_clone) AS c ON t.kind = c.kind AND t.shape = c.shape AND t.place = c.place
        WHERE t.name <> c.name
    ) AS r
    CROSS JOIN LATERAL (
        VALUES
        (1, format('ALTER %s %s.%I RENAME TO %I', r.kind, _schema, r.given, r.temporary)),
        (2, format('ALTER %s %s.%I RENAME TO %I', r.kind, _schema, r.temporary, r.final))
    ) AS found (step, statement);
    FOREACH _statement IN ARRAY coalesce(_renames, '{}') LOOP
        EXECUTE _statement;
    END LOOP;
END;
$$;
