-- Makes the function of a condition that was checked: (events, topics with the subscriptions that name them, whether some
-- name none) -> (place of the event in the array, subscription). compile_condition_v1 calls it.
CREATE OR REPLACE FUNCTION projections.make_condition_v1(p_condition_id integer, p_sql text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format(
        'CREATE FUNCTION projections_conditions.condition_%s('
        'p_events projections.matchable_events[], p_topics text[], p_subscription_ids bigint[], p_open boolean) '
        'RETURNS TABLE (place bigint, subscription_id bigint) '
        'LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS %L',
        p_condition_id,
        format(
            E'#variable_conflict use_column\n'
            'BEGIN\n'
            'IF p_subscription_ids IS NOT NULL THEN RETURN QUERY\n'
            'SELECT w.place, w.id\n'
            'FROM (\n'
            '    SELECT v.row, v.place, i.id FROM unnest(p_topics, p_subscription_ids) AS i (topic, id)\n'
            '    INNER JOIN (\n'
            '        SELECT v AS row, v.topic, row_number() OVER () AS place FROM unnest(p_events) AS v\n'
            '    ) AS v ON i.topic = v.topic\n'
            ') AS w\n'
            'WHERE EXISTS (\n'
            '    SELECT FROM (SELECT (w.row).*) AS e, projections.subscriptions_at_hand AS s\n'
            '    WHERE s.subscription_id = w.id AND (%1$s\n)\n'
            ');\n'
            'END IF;\n'
            'IF p_open THEN RETURN QUERY\n'
            'SELECT e.place, s.subscription_id\n'
            'FROM (SELECT v.*, row_number() OVER () AS place FROM unnest(p_events) AS v) AS e,\n'
            '    projections.subscriptions_at_hand AS s\n'
            'WHERE s.condition_id = %2$s AND s.topics IS NULL\n'
            'AND (s.patterns IS NULL OR e.topic LIKE ANY (s.patterns))\n'
            'AND (s.entity_types IS NULL OR e.entity_type = ANY (s.entity_types))\n'
            'AND (%1$s\n);\n'
            'END IF;\n'
            'END;\n',
            p_sql, p_condition_id
        )
    );
END;
$$;
