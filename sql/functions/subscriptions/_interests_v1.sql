-- Who wants what of some topics of an entity type: for each topic and group the subscriptions that get every event of it, and,
-- alongside a condition that looks at events themselves, those that get what it says. The NULL among the topics asks for those with
-- such a condition that name no topic: they come once, without one.
--
-- A condition on types is asked about them here. Where it fails on one, or is set apart, it comes as one that looks at events. With
-- p_condition_id only that condition comes, and so.
CREATE OR REPLACE FUNCTION projections._interests_v1(p_entity_type text, p_topics text[], p_condition_id integer DEFAULT NULL)
RETURNS SETOF projections.interests
LANGUAGE plpgsql
STABLE
-- The planner takes arrays to be short, and would go through one for each element of another.
SET enable_nestloop = off
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _named CONSTANT text[] := ARRAY(SELECT t.topic FROM unnest(p_topics) AS t (topic) WHERE t.topic IS NOT NULL);
    _apart CONSTANT integer[] := CASE WHEN p_condition_id IS NULL THEN ARRAY(SELECT projections._conditions_apart_v1()) ELSE ARRAY[p_condition_id] END;
    _topics text[];
    _ids bigint[];
    _failed_ids integer[] := '{}';
    _failed_topics text[] := '{}';
    _asked record;
    _matched record;
    _seen text[];
    _types projections.matchable_events[];
    _all_types CONSTANT projections.matchable_events[] := ARRAY(SELECT t FROM projections._types_v1(p_entity_type, _named) AS t);
BEGIN
    FOR _asked IN
        SELECT * FROM projections._wanted_conditions_v1(p_entity_type, _named) AS c WHERE c.of_types AND p_condition_id IS NULL
    LOOP
        IF _asked.open THEN
            _seen := _named;
            _types := _all_types;
        ELSE
            _seen := ARRAY(SELECT DISTINCT t.topic FROM unnest(_asked.topics) AS t (topic));
            _types := ARRAY(SELECT t FROM projections._types_v1(p_entity_type, _seen) AS t);
        END IF;
        SELECT * INTO _matched FROM projections._ask_condition_v1(
            _asked.condition_id, _types, _asked.topics, _asked.subscription_ids, _asked.open
        );
        _topics := _topics || ARRAY(SELECT _seen[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n);
        _ids := _ids || _matched.subscription_ids;
        _failed_topics := _failed_topics || ARRAY(SELECT _seen[m.place] FROM unnest(_matched.failed) AS m (place));
        _failed_ids := _failed_ids || array_fill(_asked.condition_id, ARRAY[coalesce(cardinality(_matched.failed), 0)]);
    END LOOP;
    RETURN QUERY
    WITH failed AS MATERIALIZED (
        SELECT f.condition_id, f.topic FROM unnest(_failed_ids, _failed_topics) AS f (condition_id, topic)
    ), interests AS (
        SELECT c.condition_id, w.topic, w.subscription_id
        FROM projections._wanted_topics_v1(p_entity_type, _named) AS w
        LEFT JOIN projections.conditions AS c ON w.condition_id = c.condition_id
        WHERE CASE
            WHEN p_condition_id IS NOT NULL THEN c.condition_id = p_condition_id
            ELSE w.condition_id IS NULL OR NOT c.of_types OR c.condition_id = ANY (_apart)
            OR (c.condition_id, w.topic) IN (SELECT f.condition_id, f.topic FROM failed AS f)
        END
        UNION ALL
        SELECT NULL, w.topic, w.subscription_id FROM unnest(_topics, _ids) AS w (topic, subscription_id)
        UNION ALL
        SELECT c.condition_id, NULL, s.subscription_id
        FROM projections.subscriptions AS s INNER JOIN projections.conditions AS c ON s.condition_id = c.condition_id
        WHERE array_position(p_topics, NULL) IS NOT NULL AND (NOT c.of_types OR c.condition_id = ANY (_apart))
        AND (p_condition_id IS NULL OR c.condition_id = p_condition_id)
        AND s.topics IS NULL AND s.patterns IS NULL AND (s.entity_types IS NULL OR p_entity_type = ANY (s.entity_types))
        UNION ALL
        SELECT f.condition_id, f.topic, s.subscription_id
        FROM failed AS f INNER JOIN projections.subscriptions AS s ON f.condition_id = s.condition_id
        WHERE s.topics IS NULL AND s.patterns IS NULL AND (s.entity_types IS NULL OR p_entity_type = ANY (s.entity_types))
    )
    SELECT i.condition_id, i.topic, s.group_id, array_agg(i.subscription_id ORDER BY i.subscription_id), p_entity_type
    FROM interests AS i
    CROSS JOIN LATERAL (
        SELECT s.group_id FROM projections.subscriptions AS s WHERE s.subscription_id = i.subscription_id LIMIT 1
    ) AS s
    GROUP BY i.condition_id, i.topic, s.group_id;
END;
$$;
