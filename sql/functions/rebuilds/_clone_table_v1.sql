-- Makes an empty table like another in another schema: columns, defaults, constraints, indexes and statistics with their names and
-- comments, storage settings, owner and grants. It is logged even where the other is not: what is done of it outlives a crash.
-- Foreign keys are for the end, when it is full (_copy_foreign_keys_v1). _clone_differences_v1 tells what is not copied.
CREATE OR REPLACE FUNCTION projections._clone_table_v1(p_table regclass, p_schema text)
RETURNS regclass
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET default_tablespace = ''
AS $$
DECLARE
    _class pg_class;
    _clone regclass;
    _statement text;
BEGIN
    SELECT c.* INTO _class FROM pg_class AS c WHERE c.oid = p_table;
    EXECUTE format('CREATE TABLE %I.%I (LIKE %s INCLUDING ALL)', p_schema, _class.relname, p_table)
    || coalesce(' USING ' || (SELECT quote_ident(m.amname) FROM pg_am AS m WHERE m.oid = _class.relam), '')
    || coalesce(' TABLESPACE ' || (SELECT quote_ident(s.spcname) FROM pg_tablespace AS s WHERE s.oid = _class.reltablespace), '');
    _clone := format('%I.%I', p_schema, _class.relname)::regclass;

    PERFORM projections._copy_names_v1(p_table, _clone);
    FOR _statement IN SELECT * FROM projections._table_settings_v1(p_table, _clone) LOOP
        EXECUTE _statement;
    END LOOP;
    IF pg_get_userbyid(_class.relowner) <> current_user THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %I', _clone, pg_get_userbyid(_class.relowner));
    END IF;
    -- What is granted to this role, which may not be the owner, would become the owner's with the table.
    PERFORM projections._copy_grants_v1(p_table, _clone);
    RETURN _clone;
END;
$$;
