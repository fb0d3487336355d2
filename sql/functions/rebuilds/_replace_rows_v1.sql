-- Puts the rows of a clone in the place of a table's, or of those of a range of slices; the old rows go to projections_old_<id>.
-- By the table's key where it has one: a row that stays is not deleted, with what refers to it, and triggers see what differs.
-- Columns that the Table does not declare are not the clone's: a row keeps them by its key, and a new row has the defaults of the
-- table, with the next numbers of its own sequences. So do identity columns that are no key of a table that has no declaration.
CREATE OR REPLACE FUNCTION projections._replace_rows_v1(
    p_rebuild projections.rebuilds, p_table regclass, p_source_column text
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_nestloop = off
AS $$
DECLARE
    _only CONSTANT smallint[] := projections._only_key_v1(p_table);
    _declared text[];
    _key smallint[];
    _stay boolean;
    _old text;
    _new text;
    _where text := 'TRUE';
    _same text;
    _columns text[];
    _names text;
    _values text;
    _kept text;
    _kept_values text;
    _set text;
    _differs text;
BEGIN
    SELECT format('projections_old_%s.%I', p_rebuild.rebuild_id, c.relname), format('projections_rebuild_%s.%I', p_rebuild.rebuild_id, c.relname)
    INTO _old, _new FROM pg_class AS c WHERE c.oid = p_table;
    SELECT r.columns, CASE
        WHEN r.columns IS NULL THEN _only
        ELSE ARRAY(
            SELECT a.attnum FROM pg_attribute AS a WHERE a.attrelid = p_table AND a.attname = ANY (r.key_columns) AND NOT a.attisdropped
        )
    END
    INTO _declared, _key
    FROM projections.rebuild_tables AS r WHERE r.rebuild_id = p_rebuild.rebuild_id AND r.table_oid = p_table;
    -- With a second unique index, rows could be in each other's way while they change.
    _stay := coalesce(_only @> _key AND _only <@ _key, FALSE);
    IF (p_rebuild.min_slice, p_rebuild.max_slice) <> (0, 1023) THEN
        _where := format(
            'projections.slice_of_v1(t.%I::text) BETWEEN %s AND %s', p_source_column, p_rebuild.min_slice, p_rebuild.max_slice
        );
    END IF;
    EXECUTE format('CREATE TABLE %s (LIKE %s)', _old, p_table);
    EXECUTE format('INSERT INTO %s SELECT t.* FROM %s AS t WHERE %s', _old, p_table, _where);
    IF NOT _stay AND EXISTS (
        SELECT FROM pg_constraint AS c WHERE c.contype = 'f' AND c.confrelid = p_table AND c.confdeltype IN ('c', 'n', 'd')
    ) THEN
        RAISE EXCEPTION 'the rows of % cannot be replaced: a foreign key with ON DELETE refers to it, and it has not one unique index alone', p_table
        USING ERRCODE = 'PJ042';
    END IF;
    -- The texts show what differs: not every type has an equality.
    SELECT
        coalesce(string_agg(format('t.%1$I = n.%1$I', a.attname), ' AND ') FILTER (WHERE v.is_key), 'FALSE'),
        array_agg(a.attname::text) FILTER (WHERE NOT w.is_kept),
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE NOT w.is_kept),
        string_agg(format('n.%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE NOT w.is_kept),
        string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE w.is_kept),
        string_agg(format('t.%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE w.is_kept),
        string_agg(format('%1$I = n.%1$I', a.attname), ', ') FILTER (WHERE NOT v.is_key AND NOT w.is_kept AND a.attidentity <> 'a'),
        string_agg(format('t.%1$I::text IS DISTINCT FROM n.%1$I::text', a.attname), ' OR ')
        FILTER (WHERE NOT v.is_key AND NOT w.is_kept AND a.attidentity <> 'a')
    INTO _same, _columns, _names, _values, _kept, _kept_values, _set, _differs
    FROM pg_attribute AS a
    CROSS JOIN LATERAL (SELECT coalesce(a.attnum = ANY (_key), FALSE)) AS v (is_key)
    CROSS JOIN LATERAL (
        SELECT CASE WHEN _declared IS NULL THEN a.attidentity <> '' AND NOT v.is_key ELSE a.attname <> ALL (_declared) END
    ) AS w (is_kept)
    WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '';

    EXECUTE format(
        'DELETE FROM %s AS t WHERE %s AND NOT EXISTS (SELECT FROM %s AS n WHERE %s)', p_table, _where, _new,
        CASE WHEN _stay THEN _same ELSE 'FALSE' END
    );
    IF _stay AND _set IS NOT NULL THEN
        EXECUTE format('UPDATE %s AS t SET %s FROM %s AS n WHERE %s AND (%s)', p_table, _set, _new, _same, _differs);
    ELSIF NOT _stay AND _kept IS NOT NULL THEN
        EXECUTE format(
            'INSERT INTO %1$s (%2$s, %3$s) OVERRIDING SYSTEM VALUE SELECT %4$s, %8$s FROM %5$s AS n INNER JOIN %6$s AS t ON %7$s', p_table,
            _names, _kept,
            _values, _new, _old, _same, _kept_values
        );
    END IF;
    EXECUTE format(
        'INSERT INTO %1$s (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM %3$s AS n '
        'WHERE NOT EXISTS (SELECT FROM %1$s AS t WHERE %4$s)', p_table,
        _names, _new, _same
    );
    PERFORM projections._continue_identities_v1(p_table, _new::regclass, _columns);
END;
$$;
