-- Has identity columns of a table go on after the numbers that the same columns of another one have given, or after their own: no number
-- is given a second time.
CREATE OR REPLACE FUNCTION projections._continue_identities_v1(p_table regclass, p_other regclass, p_columns text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _column text;
BEGIN
    FOR _column IN
        SELECT a.attname FROM pg_attribute AS a
        WHERE a.attrelid = p_table AND a.attidentity <> '' AND NOT a.attisdropped AND a.attname = ANY (p_columns)
    LOOP
        EXECUTE format(
            'SELECT setval(%1$L, greatest(l.last_value, n.last_value)) FROM %1$s AS l, %2$s AS n',
            pg_get_serial_sequence(p_table::text, _column), pg_get_serial_sequence(p_other::text, _column)
        );
    END LOOP;
END;
$$;
