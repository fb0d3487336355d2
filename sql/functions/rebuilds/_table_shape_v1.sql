-- What of a table must not change while a clone of it is filled, or the swap would undo it: all that the catalogue holds of it.
CREATE OR REPLACE FUNCTION projections._table_shape_v1(p_table regclass)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT md5(string_agg(f.part || ' ' || f.facts, E'\n' ORDER BY f.part COLLATE "C")) FROM projections._table_facts_v1(p_table) AS f
$$;
