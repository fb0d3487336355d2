-- Makes the function of a condition that was checked: (events, topics with the subscriptions that name them, whether some
-- name none) -> (place of the event in the array, subscription). One that looks at no subscription is asked once for each
-- event, and says NULL for the subscription: whichever wants the event. One that the index of interests answers (p_by_params)
-- finds subscriptions there, by params and topic at a time; all others are asked about those that want the event's topic.
-- _compile_condition_v1 calls it. Apart from e and s, names in it are such that a condition does not meet them.
CREATE OR REPLACE FUNCTION projections._make_condition_v1(
    p_condition_id integer, p_sql text, p_of_subscriptions boolean DEFAULT TRUE, p_by_params boolean DEFAULT FALSE
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _events CONSTANT text :=
        E'SELECT projections_event.projections_place, %s\n'
        'FROM (\n'
        '    SELECT projections_row, row_number() OVER () AS projections_place, projections_row.topic AS projections_topic\n'
        '    FROM unnest(projections_events) AS projections_row\n'
        ') AS projections_event\n'
        'CROSS JOIN LATERAL (SELECT (projections_event.projections_row).*) AS e\n';
    _found CONSTANT text := 'RETURN QUERY ' || format(_events, 's.subscription_id');
    _types CONSTANT text := E'(s.entity_types IS NULL OR e.entity_type = ANY (s.entity_types))\n';
    -- Written so that no other index can be taken: which one is, is not for statistics to decide.
    _own CONSTANT text := format('s.condition_id IS NOT DISTINCT FROM %s AND ', p_condition_id);
    _all CONSTANT text := E'CROSS JOIN projections.subscriptions_at_hand AS s\nWHERE ';
    _asked CONSTANT text := format(E'AND (%s\n);\n', p_sql);
    _named CONSTANT text := _found
            || E'INNER JOIN unnest(projections_topics, projections_ids) AS projections_wanted (projections_topic, projections_id)\n'
            '    ON projections_event.projections_topic = projections_wanted.projections_topic\n'
            'INNER JOIN projections.subscriptions_at_hand AS s ON projections_wanted.projections_id = s.subscription_id\n'
            'WHERE TRUE ' || _asked;
    _body text;
BEGIN
    IF NOT p_of_subscriptions THEN
        _body := 'RETURN QUERY ' || format(_events, 'NULL::bigint') || 'WHERE TRUE ' || _asked;
    ELSIF p_by_params THEN
        -- One subscription, as for its past, has nothing to do with the params of others.
        _body := E'IF projections_ids[1] = ALL (projections_ids) THEN\n' || _named
            || E'ELSIF projections_ids IS NOT NULL THEN\n'
            || _found || _all || _own || 's.topics @> ARRAY[projections_event.projections_topic] AND ' || _types || _asked
            || _found || _all || _own || 's.patterns IS NOT NULL AND '
            || E'((projections_event.projections_topic, s.subscription_id) IN (SELECT * FROM unnest(projections_topics, projections_ids))) IS TRUE\n'
            || _asked
            || E'END IF;\nIF projections_open THEN\n'
            || _found || _all || _own || 'num_nonnulls(s.topics, s.patterns) = 0 AND ' || _types || _asked
            || E'END IF;\n';
    ELSE
        _body := E'IF projections_ids IS NOT NULL THEN\n' || _named
            || E'END IF;\nIF projections_open THEN\n'
            || _found || _all || format('s.condition_id = %s AND s.topics IS NULL AND s.patterns IS NULL AND ', p_condition_id) || _types
            || _asked
            || E'END IF;\n';
    END IF;
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION projections_conditions.condition_%s('
        'projections_events projections.matchable_events[], projections_topics text[], projections_ids bigint[], '
        'projections_open boolean) '
        'RETURNS TABLE (projections_place bigint, projections_id bigint) '
        'LANGUAGE plpgsql STABLE SECURITY DEFINER '
        -- Planned once: what it is given is never as the planner would guess, and it is called for every batch.
        'SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS %L',
        p_condition_id, E'#variable_conflict use_column\nBEGIN\n' || _body || E'END;\n'
    );
END;
$$;
