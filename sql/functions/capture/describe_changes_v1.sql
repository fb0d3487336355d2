-- Trigger: hands the changes of one statement to append_changes_v1, which fires next. It runs with the rights of whoever
-- writes the table, for a table's types and its serializer may bring functions of their own; so it names nothing of
-- this schema. The settings make the text of a value, and with it the source of a row, the same in every session.
CREATE OR REPLACE FUNCTION projections.describe_changes_v1()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
SET datestyle = 'ISO, YMD'
SET intervalstyle = 'iso_8601'
SET bytea_output = 'hex'
SET extra_float_digits = 1
SET lc_monetary = 'C'
AS $$
DECLARE
    -- Triggers that fire within this statement have a greater depth: they do not overwrite what is handed over.
    _place constant text := 'projections.captured_' || pg_trigger_depth();
    _settings constant json := TG_ARGV[0];
    _is_partition boolean;
    _columns text;
    _key text[];
    _row text;
    _shaped text;
    _text text;
    _count integer := 0;
BEGIN
    SELECT
        c.relispartition,
        -- A virtual column has no value when triggers fire.
        string_agg(format('r.%I', a.attname), ', ' ORDER BY a.attnum) FILTER (WHERE a.attgenerated <> 'v'),
        array_agg(a.attname::text ORDER BY k.place) FILTER (WHERE k.place <= i.indnkeyatts)
    INTO _is_partition, _columns, _key
    FROM pg_class AS c
    INNER JOIN pg_attribute AS a ON c.oid = a.attrelid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_index AS i ON c.oid = i.indrelid AND i.indisprimary
    LEFT JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY AS k (attnum, place) ON a.attnum = k.attnum
    WHERE c.oid = TG_RELID
    GROUP BY c.relispartition;
    PERFORM set_config(_place, '0', TRUE);
    IF (_settings ->> 'partition')::boolean AND NOT _is_partition THEN
        RETURN NULL;  -- detached since: no part of the captured table
    END IF;
    IF _key IS DISTINCT FROM ARRAY(SELECT json_array_elements_text(_settings -> 'key')) THEN
        RAISE EXCEPTION 'the primary key of % is (%), and was % when it was captured: call projections.capture_table_v1 again',
            TG_RELID::regclass, array_to_string(_key, ', '), _settings ->> 'key'
        USING ERRCODE = 'PJ062';
    END IF;

    _shaped := _settings ->> 'serializer';
    IF _shaped IS NOT NULL AND to_regprocedure(_shaped || '(text, jsonb, jsonb)') IS NULL THEN
        RAISE EXCEPTION 'the function % that shapes events of % is gone: call projections.capture_table_v1 again',
            _shaped, TG_RELID::regclass
        USING ERRCODE = 'PJ063';
    END IF;
    _row := format(
        'row_number() OVER () AS place, (SELECT %s(t.*) FROM (SELECT %s) AS t) AS state, json_build_array(%s)%s AS key',
        CASE WHEN _shaped IS NULL THEN 'to_json' ELSE 'to_jsonb' END, _columns,
        (SELECT string_agg(format('r.%I', u.name), ', ' ORDER BY u.place) FROM unnest(_key) WITH ORDINALITY AS u (name, place)),
        CASE WHEN cardinality(_key) = 1 THEN ' ->> 0' ELSE '::text' END
    );
    FOR _text IN EXECUTE concat(
        'WITH states AS MATERIALIZED (',
        CASE WHEN TG_OP <> 'INSERT' THEN format('SELECT 0 AS side, %s FROM old_rows AS r', _row) END,
        CASE WHEN TG_OP = 'UPDATE' THEN ' UNION ALL ' END,
        CASE WHEN TG_OP <> 'DELETE' THEN format('SELECT 1 AS side, %s FROM new_rows AS r', _row) END,
        -- An id of 255 characters is a shortened one, so it is never another row's own.
        $q$), named AS (
            SELECT s.side, s.place, s.state, (
                CASE
                    WHEN char_length(s.key) + char_length($1) < 254 THEN $1 || '/' || s.key
                    ELSE left($1 || '/' || s.key, 190) || '~' || encode(sha256(convert_to(s.key, 'UTF8')), 'hex')
                END
            ) COLLATE "C" AS source_id
            FROM states AS s
        ), sides AS (
            -- A row can be changed more than once, by a foreign key's cascade: what counts is its first and its last state.
            SELECT
                n.source_id, array_agg(n.side ORDER BY n.place, n.side) AS side, array_agg(n.state ORDER BY n.place, n.side) AS state
            FROM named AS n GROUP BY n.source_id
        ), net AS (
            SELECT
                s.source_id, CASE WHEN s.side[1] = 0 THEN s.state[1] END AS before,
                CASE WHEN s.side[cardinality(s.side)] = 1 THEN s.state[cardinality(s.state)] END AS after
            FROM sides AS s
        ), changes AS (
            SELECT
                n.*, CASE WHEN n.before IS NULL THEN 'insert' WHEN n.after IS NULL THEN 'delete' ELSE 'update' END AS operation
            FROM net AS n WHERE n.before::text IS DISTINCT FROM n.after::text
        ), shaped AS MATERIALIZED ($q$,
        CASE WHEN _shaped IS NOT NULL THEN format($q$
            SELECT c.source_id, c.operation, %s(c.operation, c.before, c.after) AS payload, NULL::json AS metadata
            FROM changes AS c$q$, _shaped)
        ELSE $q$
            SELECT
                c.source_id, c.operation, CASE WHEN c.operation = 'update' THEN (
                    SELECT concat('{', string_agg(concat(to_json(f.name), ':', f.value), ','), '}')::json
                    FROM ROWS FROM (json_each(c.after), json_each(c.before)) AS f (name, value, old_name, old_value)
                    WHERE f.value::text <> f.old_value::text
                ) ELSE coalesce(c.after, c.before) END AS payload,
                CASE WHEN c.operation = 'update' THEN json_build_object('old', c.before) END AS metadata
            FROM changes AS c$q$ END,
        $q$), events AS (
            SELECT s.source_id, json_build_object('s', s.source_id, 'o', s.operation, 'p', s.payload, 'm', s.metadata)::text AS event
            FROM shaped AS s WHERE s.payload IS NOT NULL
        ), portions AS (
            -- In the order in which appends lock sources, over all portions: two statements do not deadlock in the journal.
            SELECT e.*, sum(octet_length(e.event)) OVER (ORDER BY e.source_id) / 4194304 AS portion FROM events AS e
        )
        SELECT concat('[', string_agg(p.event, ',' ORDER BY p.source_id), ']') FROM portions AS p
        GROUP BY p.portion ORDER BY p.portion$q$
    ) USING _settings ->> 'entity_type'
    LOOP
        _count := _count + 1;
        PERFORM set_config(_place || '_' || _count, _text, TRUE);
    END LOOP;
    PERFORM set_config(_place, _count::text, TRUE);
    RETURN NULL;
END;
$$;
