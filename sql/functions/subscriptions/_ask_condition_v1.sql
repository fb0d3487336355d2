-- Asks one condition about events, on behalf of the subscriptions that name topics, and, where open, of those that name none.
-- Returns the places of events in the array, and alongside each a subscription that it is for, or NULL for all that want the event;
-- and the places of events that it failed on, with the errors. What takes too long, or too much memory, fails the call.
CREATE OR REPLACE FUNCTION projections._ask_condition_v1(
    p_condition_id integer,
    p_events projections.matchable_events[],
    p_topics text[],
    p_subscription_ids bigint[],
    p_open boolean,
    OUT places bigint[],
    OUT subscription_ids bigint[],
    OUT failed bigint[],
    OUT errors text[]
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_nestloop = on
-- The index of what subscriptions ask for (params) can be read in no other way.
SET enable_bitmapscan = on
-- What sorts or counts within a condition goes to disk beyond.
SET work_mem = '4MB'
SET hash_mem_multiplier = 1
AS $$
DECLARE
    _half CONSTANT integer := cardinality(p_events) / 2;
    _first record;
    _second record;
    _context text;
BEGIN
    BEGIN
        EXECUTE format(
            'SELECT array_agg(m.projections_place), array_agg(m.projections_id) '
            'FROM projections_conditions.condition_%s($1, $2, $3, $4) AS m', p_condition_id
        )
        INTO places, subscription_ids USING p_events, p_topics, p_subscription_ids, p_open;
        RETURN;
    EXCEPTION
        -- What an event, or the condition itself, brings about at once. For all else the caller asks about fewer events.
        WHEN data_exception OR syntax_error_or_access_rule_violation OR plpgsql_error OR cardinality_violation
        OR case_not_found OR feature_not_supported OR invalid_schema_name OR external_routine_exception THEN
            GET STACKED DIAGNOSTICS _context = PG_EXCEPTION_CONTEXT;
            -- What the caller may not do is not the fault of the condition.
            IF SQLSTATE = '42501' AND strpos(_context, 'PL/pgSQL function projections_conditions.') = 0 THEN
                RAISE;
            END IF;
            IF cardinality(p_events) <= 1 THEN
                failed := ARRAY[1];
                errors := ARRAY[SQLERRM];
                RETURN;
            END IF;
    END;
    SELECT * INTO _first FROM projections._ask_condition_v1(
        p_condition_id, p_events[:_half], p_topics, p_subscription_ids, p_open
    );
    SELECT * INTO _second FROM projections._ask_condition_v1(
        p_condition_id, p_events[_half + 1 :], p_topics, p_subscription_ids, p_open
    );
    places := _first.places || ARRAY(SELECT p.place + _half FROM unnest(_second.places) WITH ORDINALITY AS p (place, n) ORDER BY p.n);
    subscription_ids := _first.subscription_ids || _second.subscription_ids;
    failed := _first.failed || ARRAY(SELECT p.place + _half FROM unnest(_second.failed) WITH ORDINALITY AS p (place, n) ORDER BY p.n);
    errors := _first.errors || _second.errors;
END;
$$;
