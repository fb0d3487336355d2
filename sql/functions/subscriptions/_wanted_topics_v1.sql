-- Which subscriptions want which of some topics, as far as their lists say; a condition is still to be asked. Those with a
-- condition and neither list nor pattern of topics are left out: they want all.
CREATE OR REPLACE FUNCTION projections._wanted_topics_v1(p_entity_type text, p_topics text[])
RETURNS TABLE (topic text, subscription_id bigint, condition_id integer)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT t.topic, s.subscription_id, s.condition_id
    FROM unnest(p_topics) AS t (topic)
    CROSS JOIN LATERAL (
        SELECT n.subscription_id FROM projections.subscription_topics AS n WHERE n.topic = t.topic OFFSET 0
    ) AS n
    CROSS JOIN LATERAL (
        SELECT s.* FROM projections.subscriptions AS s WHERE s.subscription_id = n.subscription_id LIMIT 1
    ) AS s
    WHERE s.entity_types IS NULL OR p_entity_type = ANY (s.entity_types)
    UNION ALL
    SELECT t.topic, s.subscription_id, s.condition_id
    FROM projections.subscriptions AS s
    CROSS JOIN unnest(p_topics) AS t (topic)
    WHERE s.topics IS NULL AND (s.condition_id IS NULL OR s.patterns IS NOT NULL)
    AND (s.entity_types IS NULL OR p_entity_type = ANY (s.entity_types))
    AND (s.patterns IS NULL OR t.topic LIKE ANY (s.likes) AND (s.regexes IS NULL OR t.topic ~ ANY (s.regexes)))
$$;
