-- The columns by which the rows of a table can be replaced one by one: those of its one unique index. NULL where there is
-- none, or a second one: then rows could be in each other's way while they change.
CREATE OR REPLACE FUNCTION projections._only_key_v1(p_table regclass)
RETURNS smallint[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT found.key FROM (
        SELECT array_agg(k.attnum) AS key, count(DISTINCT i.indexrelid) AS indexes, bool_and(
            i.indisunique AND i.indimmediate AND i.indpred IS NULL AND i.indexprs IS NULL AND coalesce(a.attnotnull, FALSE)
        ) AS fits
        FROM pg_index AS i
        CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place)
        LEFT JOIN pg_attribute AS a ON i.indrelid = a.attrelid AND k.attnum = a.attnum
        WHERE i.indrelid = p_table AND (i.indisunique OR i.indisexclusion) AND k.place <= i.indnkeyatts
    ) AS found
    WHERE found.indexes = 1 AND found.fits
$$;
