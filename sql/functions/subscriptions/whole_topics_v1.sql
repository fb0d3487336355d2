-- Which subscriptions of which groups get every event of some topics: those without a condition, and those whose condition
-- looks at nothing but the type and says so.
CREATE OR REPLACE FUNCTION projections.whole_topics_v1(p_entity_type text, p_topics text[])
RETURNS TABLE (topic text, group_id integer, subscription_ids bigint[])
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _topics text[];
    _ids bigint[];
    _asked record;
    _matched record;
    _seen text[];
BEGIN
    SELECT array_agg(w.topic), array_agg(w.subscription_id) INTO _topics, _ids
    FROM projections.wanted_topics_v1(p_entity_type, p_topics) AS w WHERE w.condition_id IS NULL;
    FOR _asked IN SELECT * FROM projections.wanted_conditions_v1(p_entity_type, p_topics) AS c WHERE c.of_types LOOP
        _seen := CASE WHEN _asked.open THEN p_topics ELSE ARRAY(SELECT DISTINCT t.topic FROM unnest(_asked.topics) AS t (topic)) END;
        SELECT * INTO _matched FROM projections.ask_condition_v1(
            _asked.condition_id, ARRAY(SELECT t FROM projections.types_v1(p_entity_type, _seen) AS t), _asked.topics, _asked.subscription_ids, _asked.open
        );
        _topics := _topics || ARRAY(SELECT _seen[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n);
        _ids := _ids || _matched.subscription_ids;
    END LOOP;
    RETURN QUERY
    SELECT w.topic, s.group_id, array_agg(s.subscription_id ORDER BY s.subscription_id)
    FROM unnest(_topics, _ids) AS w (topic, subscription_id)
    INNER JOIN projections.subscriptions AS s ON w.subscription_id = s.subscription_id
    GROUP BY w.topic, s.group_id;
END;
$$;
