-- Trigger: hands the changes of one statement to _append_changes_v1, which fires next. It runs with the rights of whoever
-- writes the table, for a table's types and its serializer may bring functions of their own; so it names nothing of
-- this schema. The settings make the text of a value, and with it the source of a row, the same in every session.
-- Raises PJ062 where the primary key is another than at the capture, or of types that are written in another way, PJ063 where the
-- serializer is gone or another trigger could move rows after _note_move_v1 has looked, PJ064 where a MERGE has moved rows to other
-- partitions: neither table of the statement has them.
CREATE OR REPLACE FUNCTION projections._describe_changes_v1()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD'
SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex'
SET extra_float_digits = 1
SET lc_monetary = 'C'
SET plan_cache_mode = 'force_generic_plan'
SET enable_hashagg = off
AS $$
DECLARE
    -- Triggers that fire within this statement have a greater depth: they do not overwrite what is handed over.
    _place constant text := 'projections.captured_' || pg_trigger_depth();
    _moved constant text := 'projections.moved_' || pg_trigger_depth();
    _settings constant json := TG_ARGV[0];
    _entity_type constant text := _settings ->> 'entity_type';
    _serializer constant text := _settings ->> 'serializer';
    _is_partition boolean;
    _key text[];
    _types text[];
    _virtual text[];
    -- Row after row, with what no JSON has in it between them: arrays would be put together from pieces of twice the size.
    _old_rows text;
    _new_rows text;
    _payloads json[];
    _metadata json[];
    _portion record;
    _portions integer := 0;
    _later record;
    -- A row can be changed more than once, by a foreign key's cascade: what counts is its first and its last state.
    -- In the order in which appends lock sources, over all portions: two statements do not deadlock in the journal.
    -- A cursor, for a loop over a query would fetch fifty portions at a time.
    _changes CURSOR FOR
        WITH stated AS (
            SELECT r.place, r.side, CASE WHEN _virtual IS NULL THEN r.state ELSE ( -- they have no values when triggers fire
                SELECT concat('{', string_agg(concat(to_json(f.key), ':', f.value), ','), '}')::json
                FROM json_each(r.state) AS f WHERE f.key <> ALL(_virtual)
            ) END AS state
            FROM (
                SELECT o.place, 0 AS side, o.state::json FROM string_to_table(_old_rows, E'\x01') WITH ORDINALITY AS o (state, place)
                UNION ALL
                SELECT n.place, 1 AS side, n.state::json FROM string_to_table(_new_rows, E'\x01') WITH ORDINALITY AS n (state, place)
            ) AS r
        ), named AS (
            SELECT s.place, s.side, s.state, CASE
                WHEN cardinality(_key) = 1 THEN s.state ->> _key[1]
                ELSE (SELECT json_agg(s.state -> k.name ORDER BY k.place)::text FROM unnest(_key) WITH ORDINALITY AS k (name, place))
            END AS key
            FROM stated AS s
            OFFSET 0  -- here and below: else what is above would be worked out again wherever it is named
        ), sourced AS (
            -- An id of 255 characters is a shortened one, so it is never another row's own.
            SELECT n.place, n.side, n.state, (CASE
                WHEN char_length(_entity_type) + char_length(n.key) < 254 THEN _entity_type || '/' || n.key
                ELSE left(_entity_type || '/' || n.key, 190) || '~' || encode(sha256(convert_to(n.key, 'UTF8')), 'hex')
            END) COLLATE "C" AS source_id
            FROM named AS n
        ), rows AS (
            -- Sorted before: an ORDER BY of the aggregates would sort each row's two states for themselves, at thrice the cost.
            SELECT s.source_id, array_agg(s.side) AS sides, array_agg(s.state) AS states
            FROM (SELECT * FROM sourced AS s ORDER BY s.source_id, s.place, s.side) AS s GROUP BY s.source_id
        ), changes AS (
            SELECT
                r.source_id, CASE WHEN r.sides[1] = 0 THEN r.states[1] END AS old,
                CASE WHEN r.sides[cardinality(r.sides)] = 1 THEN r.states[cardinality(r.sides)] END AS new
            FROM rows AS r
            OFFSET 0
        ), sized AS (
            SELECT
                c.*, CASE WHEN c.old IS NULL THEN 'insert' WHEN c.new IS NULL THEN 'delete' ELSE 'update' END AS operation,
                sum(octet_length(concat(c.old, c.new))) OVER (ORDER BY c.source_id ROWS UNBOUNDED PRECEDING) / 262144 AS portion
            FROM changes AS c
            WHERE c.old::text IS DISTINCT FROM c.new::text
        )
        SELECT
            array_agg(to_json(c.source_id)) AS source_ids, array_agg(c.operation) AS operations, array_agg(c.old) AS old,
            array_agg(c.new) AS new
        FROM sized AS c GROUP BY c.portion ORDER BY c.portion;
BEGIN
    PERFORM set_config(_place, '0', TRUE);
    IF TG_OP <> 'INSERT' THEN
        SELECT string_agg(to_json(r.*)::text, E'\x01') INTO _old_rows FROM old_rows AS r;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        SELECT string_agg(to_json(r.*)::text, E'\x01') INTO _new_rows FROM new_rows AS r;
    END IF;
    IF TG_OP = 'UPDATE' AND json_array_length(_settings -> 'moved_by') > 0 THEN
        -- What a trigger of a partition changes after _note_move_v1 has looked could move a row that nobody counts. Nearly always none has
        -- such a name, so the partitions are not looked at.
        SELECT t.tgname AS name, t.tgrelid::regclass AS relation INTO _later
        FROM pg_trigger AS t
        WHERE t.tgname > 'zz_projections_capture_moves' AND t.tgtype & 19 = 19 AND t.tgenabled <> 'D'  -- BEFORE UPDATE, of each row
        AND t.tgrelid <> TG_RELID AND EXISTS (SELECT FROM pg_partition_ancestors(t.tgrelid) AS a WHERE a.relid = TG_RELID)
        ORDER BY 1, 2
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'trigger % of table % fires after zz_projections_capture_moves, and could move rows unseen',
                _later.name, _later.relation
            USING ERRCODE = 'PJ063', HINT = 'Give it a name that sorts before: ALTER TRIGGER ... RENAME TO ...';
        END IF;
    END IF;
    IF TG_OP = 'UPDATE' AND coalesce(current_setting(_moved, TRUE), '') <> '' THEN
        IF current_setting(_moved)::bigint > (
            SELECT count(*) FROM ROWS FROM (string_to_table(_old_rows, E'\x01'), string_to_table(_new_rows, E'\x01')) AS r (old, new)
            WHERE EXISTS (
                SELECT FROM json_array_elements_text(_settings -> 'moved_by') AS m (name)
                WHERE (r.old::json -> m.name)::text <> (r.new::json -> m.name)::text
            )
        ) THEN
            RAISE EXCEPTION 'a MERGE has moved rows of % to other partitions, and PostgreSQL does not say which', TG_RELID::regclass
            USING ERRCODE = 'PJ064', HINT = 'Change the columns that it is partitioned by with UPDATE, or with DELETE and INSERT.';
        END IF;
        PERFORM set_config(_moved, '', TRUE);
    END IF;
    IF coalesce(_old_rows, _new_rows) IS NULL THEN
        RETURN NULL;
    END IF;

    SELECT c.relispartition, k.names, k.types, v.names INTO _is_partition, _key, _types, _virtual
    FROM pg_class AS c
    CROSS JOIN LATERAL (
        SELECT
            array_agg(a.attname::text ORDER BY u.place) AS names,
            array_agg(CASE  -- as _key_types_v1
                WHEN a.atttypid IN ('int2'::regtype, 'int4'::regtype, 'int8'::regtype) THEN 'integer'
                WHEN a.atttypid IN ('text'::regtype, 'varchar'::regtype) THEN 'text'
                ELSE format_type(a.atttypid, a.atttypmod)
            END ORDER BY u.place) AS types
        FROM pg_index AS i
        CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS u (attnum, place)
        INNER JOIN pg_attribute AS a ON i.indrelid = a.attrelid AND u.attnum = a.attnum
        WHERE i.indrelid = c.oid AND i.indisprimary AND u.place <= i.indnkeyatts
    ) AS k
    CROSS JOIN LATERAL (
        SELECT array_agg(a.attname::text) AS names FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attgenerated = 'v'
    ) AS v
    WHERE c.oid = TG_RELID;
    IF (_settings ->> 'partition')::boolean AND NOT _is_partition THEN
        RETURN NULL;  -- detached since: no part of the captured table
    END IF;
    IF _key IS DISTINCT FROM ARRAY(SELECT json_array_elements_text(_settings -> 'key')) THEN
        RAISE EXCEPTION 'the primary key of % is (%), and was % when it was captured: call projections.capture_table_v1 again',
            TG_RELID::regclass, array_to_string(_key, ', '), _settings ->> 'key'
        USING ERRCODE = 'PJ062';
    ELSIF _settings -> 'key_types' IS NOT NULL AND to_json(_types)::text <> (_settings -> 'key_types')::text THEN
        RAISE EXCEPTION 'the primary key of % is of type (%), and was % when it was captured: its rows could become other sources',
            TG_RELID::regclass, array_to_string(_types, ', '), _settings ->> 'key_types'
        USING ERRCODE = 'PJ062', HINT = 'Call projections.capture_table_v1 again to have them begin as what they are called now.';
    END IF;

    _changes := NULL;  -- a name of its own: until PostgreSQL 15 it is the variable's, which may be open in a statement around this one
    OPEN _changes;
    _old_rows := NULL;  -- the cursor has them
    _new_rows := NULL;
    LOOP
        FETCH _changes INTO _portion;
        EXIT WHEN NOT FOUND;
        IF _serializer IS NULL THEN
            SELECT
                array_agg(CASE WHEN c.operation = 'update' THEN (
                    SELECT concat('{', string_agg(concat(to_json(f.name), ':', f.value), ','), '}')::json
                    FROM ROWS FROM (json_each(c.new), json_each(c.old)) AS f (name, value, old_name, old_value)
                    WHERE f.value::text <> f.old_value::text
                ) ELSE coalesce(c.new, c.old) END),
                array_agg(CASE WHEN c.operation = 'update' THEN json_build_object('old', c.old) END)
            INTO _payloads, _metadata
            FROM unnest(_portion.operations, _portion.old, _portion.new) AS c (operation, old, new);
        ELSE
            IF to_regprocedure(_serializer || '(text, jsonb, jsonb)') IS NULL THEN
                RAISE EXCEPTION 'the function % that shapes events of % is gone: call projections.capture_table_v1 again',
                    _serializer, TG_RELID::regclass
                USING ERRCODE = 'PJ063';
            END IF;
            EXECUTE format(
                'SELECT array_agg(%s(c.operation, c.old::jsonb, c.new::jsonb)::json ORDER BY c.place)
                FROM unnest($1, $2, $3) WITH ORDINALITY AS c (operation, old, new, place)', _serializer
            ) INTO _payloads USING _portion.operations, _portion.old, _portion.new;
        END IF;
        -- Between the values stands what no JSON has in it; where there is no value, nothing.
        _portions := _portions + 1;
        PERFORM
            set_config(_place || '_' || _portions || '_s', array_to_string(_portion.source_ids, E'\x01'), TRUE),
            set_config(_place || '_' || _portions || '_o', array_to_string(_portion.operations, E'\x01'), TRUE),
            set_config(_place || '_' || _portions || '_p', array_to_string(_payloads, E'\x01', ''), TRUE),
            set_config(_place || '_' || _portions || '_m', array_to_string(_metadata, E'\x01', ''), TRUE);
    END LOOP;
    CLOSE _changes;
    PERFORM set_config(_place, _portions::text, TRUE);
    RETURN NULL;
END;
$$;
