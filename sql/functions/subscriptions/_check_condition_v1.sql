-- Raises PJ080 for what is not a condition; returns whether it looks at nothing of an event but its type, whether it looks at the
-- subscription, and whether the index of interests answers it. It is parsed as the definition of a view, which is never planned or
-- run. _compile_condition_v1 calls it, and undoes all that it did.
CREATE OR REPLACE FUNCTION projections._check_condition_v1(
    p_condition_id integer, p_sql text, OUT of_types boolean, OUT of_subscriptions boolean, OUT by_params boolean
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    _view CONSTANT text := format('projections_conditions.checked_%s', p_condition_id);
    _arrays CONSTANT text := 'unnest(NULL::projections.matchable_events[]) AS e, unnest(NULL::projections.subscriptions_at_hand[]) AS s';
    _form text;
    _type text;
BEGIN
    -- Without one it is a single statement, whatever else it says.
    IF strpos(p_sql, ';') > 0 THEN
        RAISE EXCEPTION 'a condition has no semicolon' USING ERRCODE = 'PJ080', HINT = 'Give texts that have one in params.';
    END IF;
    -- Groups that are repeated in groups that are repeated take 120 MB to compile.
    IF 255 < (
        SELECT exp(sum(ln(greatest(r[1]::numeric, nullif(r[2], '')::numeric, 1)))) FROM regexp_matches(p_sql, '\)\{(\d{1,9})(?:,(\d{0,9}))?\}', 'g') AS r
    ) THEN
        RAISE EXCEPTION 'the groups of regular expressions in a condition are repeated too often'
        USING ERRCODE = 'PJ080', HINT = 'At most 255 times, one in another multiplied.';
    END IF;
    BEGIN
        -- What stands between brackets of each kind is one expression; the line break ends a comment.
        FOREACH _form IN ARRAY ARRAY[
            E'SELECT ARRAY[%s\n] AS matched FROM ' || _arrays,
            E'SELECT CASE WHEN %s\n THEN TRUE END AS matched FROM ' || _arrays,
            E'SELECT (%s\n) AS matched FROM projections.matchable_events AS e, projections.subscriptions_at_hand AS s'
        ] LOOP
            EXECUTE format('DROP VIEW IF EXISTS %s', _view);
            EXECUTE format('CREATE VIEW %s AS %s', _view, format(_form, p_sql));
        END LOOP;
        SELECT
            format_type(m.atttypid, m.atttypmod),
            -- Whoever names the row as a whole may look at all of it; and what the clock says is not remembered for a type.
            r.ev_action::text !~ ':varattno 0 |\{SQLVALUEFUNCTION|:resulttype (1082|1083|1114|1184|1266) :resultcollid'
            AND NOT EXISTS (
                SELECT FROM regexp_matches(r.ev_action::text, ':(?:funcid|opfuncid) (\d+)', 'g') AS f
                INNER JOIN pg_catalog.pg_proc AS p ON f[1]::oid = p.oid
                WHERE p.provolatile <> 'i' AND p.proname !~ '^(to_)?jsonb?(_|$)|^concat'
            )
            AND NOT EXISTS (
                SELECT FROM pg_catalog.pg_depend AS d
                INNER JOIN pg_catalog.pg_attribute AS a ON d.refobjid = a.attrelid AND d.refobjsubid = a.attnum
                WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
                AND a.attrelid = 'projections.matchable_events'::regclass
                AND a.attname NOT IN ('entity_type', 'event_type', 'topic')
            ),
            r.ev_action::text ~ ':varattno 0 ' OR EXISTS (
                SELECT FROM pg_catalog.pg_depend AS d
                WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = 'projections.subscriptions_at_hand'::regclass AND d.refobjsubid <> 0
            ),
            projections._looks_up_params_v1(r.ev_action::text)
        INTO STRICT _type, of_types, of_subscriptions, by_params
        FROM pg_catalog.pg_rewrite AS r INNER JOIN pg_catalog.pg_attribute AS m ON r.ev_class = m.attrelid AND m.attname = 'matched'
        WHERE r.ev_class = _view::regclass;

        IF _type = 'boolean' THEN
            EXECUTE format('DROP VIEW %s', _view);
            EXECUTE format(E'CREATE VIEW %s AS SELECT TRUE AS matched FROM %s WHERE (%s\n)', _view, _arrays, p_sql);
        END IF;
    EXCEPTION
        WHEN insufficient_privilege THEN RAISE;
        WHEN OTHERS THEN
            RAISE EXCEPTION 'not a condition over e and s: %', CASE
                -- The bracket is ours.
                WHEN SQLSTATE = '42601' AND SQLERRM ~ '"\]"$' AND strpos(p_sql, ']') = 0
                THEN 'it ends too early, as where a parenthesis is open or an operator lacks its right side'
                WHEN p_sql ~* 'case' THEN split_part(SQLERRM, E'\n', 1)
                -- Of the form that it was put in, above, nobody knows.
                ELSE replace(split_part(SQLERRM, E'\n', 1), 'argument of CASE/WHEN', 'it')
            END USING ERRCODE = 'PJ080';
    END;
    IF _type <> 'boolean' THEN
        RAISE EXCEPTION 'a condition is boolean, not %', _type USING ERRCODE = 'PJ080';
    END IF;
    PERFORM projections._check_condition_is_harmless_v1(_view::regclass);
END;
$$;
