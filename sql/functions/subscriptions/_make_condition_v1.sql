-- Makes the function of a condition that was checked: (events, topics with the subscriptions that name them, whether some
-- name none) -> (place of the event in the array, subscription). One that looks at no subscription is asked once for each
-- event, and says NULL for the subscription: whichever wants the event. _compile_condition_v1 calls it. Apart from e and s, names
-- in it are such that a condition does not meet them.
CREATE OR REPLACE FUNCTION projections._make_condition_v1(p_condition_id integer, p_sql text, p_of_subscriptions boolean DEFAULT TRUE)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format(
        'CREATE OR REPLACE FUNCTION projections_conditions.condition_%s('
        'projections_events projections.matchable_events[], projections_topics text[], projections_ids bigint[], '
        'projections_open boolean) '
        'RETURNS TABLE (projections_place bigint, projections_id bigint) '
        'LANGUAGE plpgsql STABLE SECURITY DEFINER '
        -- Planned once: what it is given is never as the planner would guess, and it is called for every batch.
        'SET plan_cache_mode = force_generic_plan SET search_path = pg_catalog, pg_temp SET standard_conforming_strings = on AS %L',
        p_condition_id,
        CASE WHEN p_of_subscriptions THEN format(
            E'#variable_conflict use_column\n'
            'BEGIN\n'
            'IF projections_ids IS NOT NULL THEN RETURN QUERY\n'
            'SELECT projections_event.projections_place, projections_wanted.projections_id\n'
            'FROM (\n'
            '    SELECT projections_row, row_number() OVER () AS projections_place, projections_row.topic AS projections_topic\n'
            '    FROM unnest(projections_events) AS projections_row\n'
            ') AS projections_event\n'
            'INNER JOIN unnest(projections_topics, projections_ids) AS projections_wanted (projections_topic, projections_id)\n'
            '    ON projections_event.projections_topic = projections_wanted.projections_topic\n'
            'CROSS JOIN LATERAL (SELECT (projections_event.projections_row).*) AS e\n'
            'INNER JOIN projections.subscriptions_at_hand AS s ON projections_wanted.projections_id = s.subscription_id\n'
            'WHERE (%1$s\n);\n'
            'END IF;\n'
            'IF projections_open THEN RETURN QUERY\n'
            'SELECT projections_event.projections_place, s.subscription_id\n'
            'FROM (\n'
            '    SELECT projections_row, row_number() OVER () AS projections_place\n'
            '    FROM unnest(projections_events) AS projections_row\n'
            ') AS projections_event\n'
            'CROSS JOIN LATERAL (SELECT (projections_event.projections_row).*) AS e\n'
            'CROSS JOIN projections.subscriptions_at_hand AS s\n'
            'WHERE s.condition_id = %2$s AND s.topics IS NULL AND s.patterns IS NULL\n'
            'AND (s.entity_types IS NULL OR e.entity_type = ANY (s.entity_types))\n'
            'AND (%1$s\n);\n'
            'END IF;\n'
            'END;\n',
            p_sql, p_condition_id
        )
        ELSE format(
            E'#variable_conflict use_column\n'
            'BEGIN\n'
            'RETURN QUERY\n'
            'SELECT projections_event.projections_place, NULL::bigint\n'
            'FROM (\n'
            '    SELECT projections_row, row_number() OVER () AS projections_place\n'
            '    FROM unnest(projections_events) AS projections_row\n'
            ') AS projections_event\n'
            'CROSS JOIN LATERAL (SELECT (projections_event.projections_row).*) AS e\n'
            'WHERE (%s\n);\n'
            'END;\n',
            p_sql
        ) END
    );
END;
$$;
