-- Makes a condition the function projections_conditions.condition_N, which says for many events at once which subscriptions
-- they are for; returns whether it looks at nothing of an event but its type. Belongs to the role projections_matcher, as do
-- the functions that it makes: what a condition can do is what that role can do, from the first time it is parsed.
--
-- Raises PJ080 when it is not a single boolean expression over e and s, or does more than to look at them.
CREATE OR REPLACE FUNCTION projections._compile_condition_v1(p_condition_id integer, p_sql text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET client_min_messages = warning
AS $$
DECLARE
    _looks record;
    _checked boolean := FALSE;
BEGIN
    IF current_user <> 'projections_matcher' THEN
        RAISE EXCEPTION 'no condition can be made: there is no role projections_matcher to ask it' USING ERRCODE = 'PJ080',
        HINT = 'Have somebody who may create the role do so and install the schema again, or subscribe to topics alone.';
    END IF;
    -- Parsing reads literals of types, and types may be anybody's. What their code did to this session, such as to leave it a
    -- setting or a trigger that fires after this function, is undone; of what passes nothing runs code of others again.
    BEGIN
        SELECT * INTO _looks FROM projections._check_condition_v1(p_condition_id, p_sql);
        _checked := TRUE;
        RAISE EXCEPTION 'the check is over';
    EXCEPTION
        WHEN OTHERS THEN
            IF NOT _checked THEN
                RAISE;
            END IF;
    END;
    PERFORM projections._make_condition_v1(p_condition_id, p_sql, _looks.of_types OR _looks.of_subscriptions, _looks.by_params);
    RETURN _looks.of_types;
END;
$$;
