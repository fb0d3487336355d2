-- Makes an empty table like another in another schema: columns, defaults, constraints, indexes and statistics with their
-- names, storage settings, owner and grants. It is logged even where the other is not: what is done of it outlives a crash.
-- Foreign keys are for the end, when it is full (_copy_foreign_keys_v1).
CREATE OR REPLACE FUNCTION projections._clone_table_v1(p_table regclass, p_schema text)
RETURNS regclass
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _class pg_class;
    _clone regclass;
    _statement text;
BEGIN
    SELECT c.* INTO _class FROM pg_class AS c WHERE c.oid = p_table;
    EXECUTE format('CREATE TABLE %I.%I (LIKE %s INCLUDING ALL)', p_schema, _class.relname, p_table);
    _clone := format('%I.%I', p_schema, _class.relname)::regclass;

    FOR _statement IN
        SELECT format('ALTER TABLE %s SET (%I = %L)', _clone, split_part(o.option, '=', 1), split_part(o.option, '=', 2))
        FROM unnest(_class.reloptions) AS o (option)
        UNION ALL
        SELECT format('COMMENT ON TABLE %s IS %L', _clone, obj_description(p_table, 'pg_class'))
        WHERE obj_description(p_table, 'pg_class') IS NOT NULL
        UNION ALL
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET STATISTICS %s', _clone, a.attname, a.attstattarget)
        FROM pg_attribute AS a
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND a.attstattarget >= 0
        UNION ALL
        -- Some servers keep options of their own there, such as pg_attver of Debian's 15.
        SELECT format('ALTER TABLE %s ALTER COLUMN %I SET (%s)', _clone, a.attname, o.option)
        FROM pg_attribute AS a CROSS JOIN LATERAL unnest(a.attoptions) AS o (option)
        WHERE a.attrelid = p_table AND a.attnum > 0 AND NOT a.attisdropped AND NOT starts_with(o.option, 'pg_')
    LOOP
        EXECUTE _statement;
    END LOOP;
    PERFORM projections._copy_names_v1(p_table, _clone);
    IF pg_get_userbyid(_class.relowner) <> current_user THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %I', _clone, pg_get_userbyid(_class.relowner));
    END IF;
    -- What is granted to this role, which may not be the owner, would become the owner's with the table.
    PERFORM projections._copy_grants_v1(p_table, _clone);
    RETURN _clone;
END;
$$;
