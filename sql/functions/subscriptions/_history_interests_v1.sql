-- What one subscription asks for of events of its entity types, as _match_events_v1 takes it. A condition is asked about each event.
CREATE OR REPLACE FUNCTION projections._history_interests_v1(p_subscription_id bigint, p_events projections.events_to_match[])
RETURNS SETOF projections.interests
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT s.condition_id, t.topic, s.group_id, ARRAY[s.subscription_id], t.entity_type
    FROM projections.subscriptions AS s
    CROSS JOIN LATERAL (
        SELECT DISTINCT e.topic, e.entity_type FROM unnest(p_events) AS e
        WHERE s.condition_id IS NULL OR s.topics IS NOT NULL OR s.patterns IS NOT NULL
        UNION ALL
        SELECT DISTINCT NULL, e.entity_type FROM unnest(p_events) AS e
        WHERE s.condition_id IS NOT NULL AND s.topics IS NULL AND s.patterns IS NULL
    ) AS t
    WHERE s.subscription_id = p_subscription_id
    AND (s.topics IS NULL OR t.topic = ANY (s.topics))
    AND (s.patterns IS NULL OR t.topic LIKE ANY (s.likes) AND (s.regexes IS NULL OR t.topic ~ ANY (s.regexes)))
$$;
