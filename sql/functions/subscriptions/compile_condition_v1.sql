-- Makes a condition the function projections_conditions.condition_N, which says for many events at once which subscriptions
-- they are for; returns whether it looks at nothing of an event but its type. Belongs to the role projections_matcher, as do
-- the functions that it makes: what a condition can do is what that role can do, from the first time it is parsed.
--
-- Raises PJ080 when it is no single boolean expression over e and s, or does more than to look at them.
CREATE OR REPLACE FUNCTION projections.compile_condition_v1(p_condition_id integer, p_sql text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET client_min_messages = warning
AS $$
DECLARE
    _seen CONSTANT text := 'unnest(NULL::projections.matchable_events[]) AS e, unnest(NULL::projections.subscriptions_at_hand[]) AS s';
    _view CONSTANT text := format('projections_conditions.checked_%s', p_condition_id);
    _brackets text;
    _type text;
    _of_types boolean;
BEGIN
    -- Without one it is a single statement, whatever else it says.
    IF strpos(p_sql, ';') > 0 THEN
        RAISE EXCEPTION 'a condition has no semicolon' USING ERRCODE = 'PJ080', HINT = 'Give texts that have one in params.';
    END IF;
    BEGIN
        -- What stands between brackets of each kind is one expression. A view is parsed and never run; the line break ends
        -- a comment.
        FOREACH _brackets IN ARRAY ARRAY[E'ARRAY[%s\n]', E'CASE WHEN %s\n THEN TRUE END', E'(%s\n)'] LOOP
            EXECUTE format('DROP VIEW IF EXISTS %s', _view);
            EXECUTE format('CREATE VIEW %s AS SELECT %s AS matched FROM %s', _view, format(_brackets, p_sql), _seen);
        END LOOP;
    EXCEPTION
        WHEN insufficient_privilege THEN RAISE;
        WHEN OTHERS THEN
            RAISE EXCEPTION 'not a condition over e and s: %', split_part(SQLERRM, E'\n', 1) USING ERRCODE = 'PJ080';
    END;
    SELECT format_type(a.atttypid, a.atttypmod) INTO _type FROM pg_catalog.pg_attribute AS a
    WHERE a.attrelid = _view::regclass AND a.attname = 'matched';
    IF _type <> 'boolean' THEN
        RAISE EXCEPTION 'a condition is boolean, not %', _type USING ERRCODE = 'PJ080';
    END IF;
    PERFORM projections.refuse_condition_v1(_view::regclass);

    -- Whoever names the row as a whole may look at all of it.
    _of_types := NOT EXISTS (
        SELECT FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = _view::regclass AND r.ev_action::text ~ ':varattno 0 '
    );
    EXECUTE format('DROP VIEW %s', _view);
    BEGIN
        EXECUTE format(
            E'CREATE VIEW %s AS SELECT (%s\n) AS matched FROM %s', _view, p_sql, replace(_seen, 'matchable_events', 'matchable_types')
        );
        EXECUTE format('DROP VIEW %s', _view);
    EXCEPTION
        WHEN undefined_column THEN _of_types := FALSE;
    END;
    PERFORM projections.make_condition_v1(p_condition_id, p_sql);
    RETURN _of_types;
END;
$$;
