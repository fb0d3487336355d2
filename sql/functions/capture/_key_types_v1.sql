-- The types of a table's primary key, as far as they decide how its values are written as text, and so which source a row is.
CREATE OR REPLACE FUNCTION projections._key_types_v1(p_table oid)
RETURNS text[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT array_agg(
        CASE
            WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN 'integer'
            WHEN a.atttypid IN ('text'::regtype, 'varchar'::regtype) THEN 'text'
            ELSE format_type(a.atttypid, a.atttypmod)
        END ORDER BY u.place
    )
    FROM pg_index AS i
    CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS u (attnum, place)
    INNER JOIN pg_attribute AS a ON i.indrelid = a.attrelid AND u.attnum = a.attnum
    WHERE i.indrelid = p_table AND i.indisprimary AND u.place <= i.indnkeyatts
$$;
