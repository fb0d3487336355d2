-- Has every change of a table's rows append an event, in the transaction that makes the change. Called again, it changes
-- the settings, and takes in partitions that are new. Returns the entity type: the table's name as it is written in SQL,
-- or p_entity_type; it stays when the table is renamed. A source is a row: the entity type, '/', and its primary key.
--
-- p_serializer shapes or filters: function(operation text, old jsonb, new jsonb) RETURNS jsonb, the payload, or NULL for
-- no event. It runs with the rights of whoever writes the table.
-- Raises PJ060 where the table or a setting is unfit. A warning says when its key is of other types than when it was captured before.
CREATE OR REPLACE FUNCTION projections.capture_table_v1(
    p_table regclass,
    p_insert boolean DEFAULT TRUE,
    p_update boolean DEFAULT TRUE,
    p_delete boolean DEFAULT TRUE,
    p_serializer regproc DEFAULT NULL,
    p_entity_type text DEFAULT NULL
)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _key text[];
    _entity_type text;
    _serializer text;
    _relation regclass;
    _problem text;
    _moved_by json;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('capture'));
    _key := projections._check_capturable_v1(p_table);
    SELECT coalesce(
        p_entity_type, (SELECT t.entity_type FROM projections.captured_tables AS t WHERE t.relation = p_table),
        format('%I.%I', n.nspname, c.relname)
    ) INTO _entity_type
    FROM pg_class AS c INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid WHERE c.oid = p_table;
    SELECT format('%I.%I', n.nspname, f.proname) INTO _serializer
    FROM pg_proc AS f INNER JOIN pg_namespace AS n ON f.pronamespace = n.oid
    WHERE f.oid = p_serializer AND f.prokind = 'f' AND NOT f.proretset
    AND f.prorettype = 'jsonb'::regtype AND oidvectortypes(f.proargtypes) = 'text, jsonb, jsonb';

    _problem := CASE
        WHEN NOT (coalesce(p_insert, FALSE) OR coalesce(p_update, FALSE) OR coalesce(p_delete, FALSE))
            THEN 'capture at least one of insert, update and delete'
        WHEN char_length(_entity_type) NOT BETWEEN 1 AND 180
            THEN format(
                'its entity type %L has %s characters, not 1 to 180: pass p_entity_type', _entity_type, char_length(_entity_type)
            )
        WHEN strpos(_entity_type, '*') > 0
            THEN format('its entity type is %L, and * stands for nothing in it: pass p_entity_type', _entity_type)
        WHEN p_serializer <> 0 AND _serializer IS NULL
            THEN format('%s is not a function(text, jsonb, jsonb) RETURNS jsonb', p_serializer::regprocedure)
        ELSE (
            SELECT format('entity type %L is that of %s: pass p_entity_type', _entity_type, t.relation)
            FROM projections.captured_tables AS t WHERE t.entity_type = _entity_type AND t.relation <> p_table
            UNION ALL
            SELECT format(
                'its entity type %L and %L of %s would give rows of both the same source: pass p_entity_type',
                _entity_type, t.entity_type, t.relation
            )
            FROM projections.captured_tables AS t
            WHERE starts_with(t.entity_type, _entity_type || '/') OR starts_with(_entity_type, t.entity_type || '/')
            UNION ALL
            -- As _describe_changes_v1 has it at every UPDATE.
            SELECT format(
                'its trigger %I of %s fires after zz_projections_capture_moves, and could move rows unseen: give it another name',
                t.tgname, p.relid::regclass
            )
            FROM pg_partition_tree(p_table) AS p INNER JOIN pg_trigger AS t ON p.relid = t.tgrelid
            WHERE p_update AND p.parentrelid IS NOT NULL
            AND t.tgname > 'zz_projections_capture_moves' AND t.tgtype & 19 = 19 AND t.tgenabled <> 'D'
            UNION ALL
            SELECT format(
                '%s may write it, and may not call %s, so each write would fail: %s', g.grantee, _serializer, concat_ws(
                    '; ', CASE WHEN NOT g.finds THEN format('GRANT USAGE ON SCHEMA %s TO %s', f.pronamespace::regnamespace, g.grantee) END,
                    CASE WHEN NOT g.calls THEN format('GRANT EXECUTE ON FUNCTION %s TO %s', _serializer, g.grantee) END
                )
            )
            FROM pg_class AS c
            INNER JOIN pg_proc AS f ON f.oid = p_serializer
            CROSS JOIN LATERAL (
                SELECT DISTINCT
                    CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee,
                    CASE a.grantee WHEN 0 THEN has_schema_privilege('public', f.pronamespace, 'USAGE')
                        ELSE has_schema_privilege(a.grantee, f.pronamespace, 'USAGE') END AS finds,
                    CASE a.grantee WHEN 0 THEN has_function_privilege('public', f.oid, 'EXECUTE')
                        ELSE has_function_privilege(a.grantee, f.oid, 'EXECUTE') END AS calls
                FROM aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) AS a
                WHERE a.privilege_type IN (
                    CASE WHEN p_insert THEN 'INSERT' END, CASE WHEN p_update THEN 'UPDATE' END, CASE WHEN p_delete THEN 'DELETE' END
                )
            ) AS g
            WHERE c.oid = p_table AND NOT (g.finds AND g.calls)
            LIMIT 1
        )
    END;
    IF _problem IS NOT NULL THEN
        RAISE EXCEPTION 'cannot capture %: %', p_table, _problem USING ERRCODE = 'PJ060';
    END IF;

    FOR _problem IN
        SELECT u.problem FROM projections.captured_tables AS t CROSS JOIN LATERAL unnest(t.problems) AS u (problem)
        WHERE t.relation = p_table AND starts_with(u.problem, 'its key was')
    LOOP
        RAISE WARNING 'table %: %', p_table, replace(_problem, 'writes are refused', 'its rows may become other sources');
    END LOOP;
    SELECT coalesce(json_agg(DISTINCT a.attname), '[]') INTO _moved_by
    FROM pg_partition_tree(p_table) AS t
    INNER JOIN pg_partitioned_table AS p ON t.relid = p.partrelid
    CROSS JOIN LATERAL unnest(p.partattrs::smallint[]) AS k (attnum)
    INNER JOIN pg_attribute AS a ON t.relid = a.attrelid AND k.attnum = a.attnum;
    -- A statement fires the triggers of the table that it names: those of the parent, or those of one partition.
    FOR _relation IN SELECT p_table UNION SELECT t.relid FROM pg_partition_tree(p_table) AS t LOOP
        PERFORM projections._set_capture_triggers_v1(
            _relation, array_remove(ARRAY[
                CASE WHEN p_insert THEN 'INSERT' END, CASE WHEN p_update THEN 'UPDATE' END, CASE WHEN p_delete THEN 'DELETE' END
            ], NULL), json_build_object(
                'entity_type', _entity_type, 'key', _key, 'serializer', _serializer, 'key_types', projections._key_types_v1(p_table),
                'partition', _relation <> p_table,
                'moved_by', _moved_by
            )
        );
    END LOOP;
    RETURN _entity_type;
END;
$$;
