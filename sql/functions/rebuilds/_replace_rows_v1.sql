-- Puts the rows of a clone in the place of a table's, or of those of a range of slices; the old rows go to projections_old_<id>.
-- By the table's key where it has one: a row that stays is not deleted, with what refers to it, and triggers see what differs.
CREATE OR REPLACE FUNCTION projections._replace_rows_v1(
    p_rebuild projections.rebuilds, p_table regclass, p_source_column text
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_nestloop = off
AS $$
DECLARE
    _key CONSTANT smallint[] := projections._only_key_v1(p_table);
    _old text;
    _new text;
    _where text := 'TRUE';
    _same text;
    _columns text;
    _set text;
    _differs text;
    _identity text;
BEGIN
    SELECT format('projections_old_%s.%I', p_rebuild.rebuild_id, c.relname), format('projections_rebuild_%s.%I', p_rebuild.rebuild_id, c.relname)
    INTO _old, _new FROM pg_class AS c WHERE c.oid = p_table;
    IF (p_rebuild.min_slice, p_rebuild.max_slice) <> (0, 1023) THEN
        _where := format(
            'projections.slice_of_v1(t.%I::text) BETWEEN %s AND %s', p_source_column, p_rebuild.min_slice, p_rebuild.max_slice
        );
    END IF;
    EXECUTE format('CREATE TABLE %s (LIKE %s)', _old, p_table);
    EXECUTE format('INSERT INTO %s SELECT t.* FROM %s AS t WHERE %s', _old, p_table, _where);
    IF _key IS NULL AND EXISTS (
        SELECT FROM pg_constraint AS c WHERE c.contype = 'f' AND c.confrelid = p_table AND c.confdeltype IN ('c', 'n', 'd')
    ) THEN
        RAISE EXCEPTION 'the rows of % cannot be replaced: a foreign key with ON DELETE refers to it, and it has not one unique index alone', p_table
        USING ERRCODE = 'PJ042';
    END IF;
    -- The texts show what differs: not every type has an equality.
    SELECT
        coalesce(string_agg(format('t.%1$I = n.%1$I', a.attname), ' AND ') FILTER (WHERE v.is_key), 'FALSE'),
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum),
        string_agg(format('%1$I = n.%1$I', a.attname), ', ') FILTER (WHERE NOT v.is_key AND a.attidentity <> 'a'),
        string_agg(format('t.%1$I::text IS DISTINCT FROM n.%1$I::text', a.attname), ' OR ')
        FILTER (WHERE NOT v.is_key AND a.attidentity <> 'a')
    INTO _same, _columns, _set, _differs
    FROM pg_attribute AS a CROSS JOIN LATERAL (SELECT coalesce(a.attnum = ANY(_key), FALSE)) AS v (is_key)
    WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';

    EXECUTE format(
        'DELETE FROM %s AS t WHERE %s AND NOT EXISTS (SELECT FROM %s AS n WHERE %s)', p_table, _where, _new, _same
    );
    IF _key IS NOT NULL AND _set IS NOT NULL THEN
        EXECUTE format('UPDATE %s AS t SET %s FROM %s AS n WHERE %s AND (%s)', p_table, _set, _new, _same, _differs);
    END IF;
    EXECUTE format(
        'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s AS n '
        'WHERE NOT EXISTS (SELECT FROM %1$s AS t WHERE %4$s)', p_table, _columns, _new, _same
    );
    FOR _identity IN
        SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = p_table AND a.attidentity <> '' AND NOT a.attisdropped
    LOOP
        EXECUTE format(
            'SELECT setval(%1$L, greatest(l.last_value, n.last_value)) FROM %1$s AS l, %2$s AS n',
            pg_get_serial_sequence(p_table::text, _identity), pg_get_serial_sequence(_new, _identity)
        );
    END LOOP;
END;
$$;
