-- Puts the rows of a clone in the place of a table's, or of those of a range of slices; the old rows go to projections_old_<id>.
CREATE OR REPLACE FUNCTION projections.replace_rows_v1(
    p_rebuild projections.rebuilds, p_table regclass, p_source_column text
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name text;
    _columns text;
    _where text := 'TRUE';
BEGIN
    SELECT c.relname INTO _name FROM pg_class AS c WHERE c.oid = p_table;
    SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) INTO _columns
    FROM pg_attribute AS a WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';
    IF (p_rebuild.min_slice, p_rebuild.max_slice) <> (0, 1023) THEN
        _where := format(
            'projections.slice_of_v1(%I::text) BETWEEN %s AND %s', p_source_column, p_rebuild.min_slice, p_rebuild.max_slice
        );
    END IF;
    EXECUTE format('CREATE TABLE projections_old_%s.%I (LIKE %s)', p_rebuild.rebuild_id, _name, p_table);
    EXECUTE format(
        'WITH gone AS (DELETE FROM %s WHERE %s RETURNING *) INSERT INTO projections_old_%s.%I SELECT * FROM gone',
        p_table, _where, p_rebuild.rebuild_id, _name
    );
    EXECUTE format(
        'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM projections_rebuild_%3$s.%4$I',
        p_table, _columns, p_rebuild.rebuild_id, _name
    );
END;
$$;
