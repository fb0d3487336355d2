-- Which conditions are to be asked for some topics: for those of them that subscriptions name, and, where open, for all. None
-- is asked about an event that its subscriptions do not want: there it may fail.
CREATE OR REPLACE FUNCTION projections._wanted_conditions_v1(p_entity_type text, p_topics text[])
RETURNS TABLE (condition_id integer, of_types boolean, open boolean, topics text[], subscription_ids bigint[])
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT c.condition_id, c.of_types, o.open, w.topics, w.subscription_ids
    FROM projections.conditions AS c
    CROSS JOIN LATERAL (
        SELECT EXISTS (
            SELECT FROM projections.subscriptions AS s
            WHERE s.condition_id = c.condition_id AND s.topics IS NULL AND s.patterns IS NULL
            AND (s.entity_types IS NULL OR p_entity_type = ANY (s.entity_types))
        ) AS open
    ) AS o
    LEFT JOIN (
        SELECT w.condition_id, array_agg(w.topic) AS topics, array_agg(w.subscription_id) AS subscription_ids
        FROM projections._wanted_topics_v1(p_entity_type, p_topics) AS w
        WHERE w.condition_id IS NOT NULL
        GROUP BY w.condition_id
    ) AS w ON c.condition_id = w.condition_id
    WHERE (o.open OR w.topics IS NOT NULL)
    AND c.condition_id <> ALL (ARRAY(SELECT projections._conditions_apart_v1()))
    ORDER BY c.condition_id
$$;
