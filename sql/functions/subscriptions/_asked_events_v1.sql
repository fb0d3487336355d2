-- What is to be asked about events themselves, of what _interests_v1 says: for each condition and entity type the events that it is
-- to see, with their places, and the subscriptions by topic. Events without a topic are left out, and so are the conditions in
-- p_apart.
CREATE OR REPLACE FUNCTION projections._asked_events_v1(
    p_events projections.events_to_match[], p_interests projections.interests[], p_apart integer[] DEFAULT '{}'
)
RETURNS TABLE (
    condition_id integer,
    events projections.matchable_events[],
    places bigint[],
    topics text[],
    subscription_ids bigint[],
    open boolean
)
LANGUAGE plpgsql
STABLE
-- The planner takes arrays to be short, and would go through one for each element of another.
SET enable_nestloop = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM unnest(p_interests) AS w WHERE w.condition_id IS NOT NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH given AS MATERIALIZED (
        SELECT e.*, e.ordinality AS place FROM unnest(p_events) WITH ORDINALITY AS e WHERE e.topic IS NOT NULL
    ), wanted AS MATERIALIZED (
        SELECT w.* FROM unnest(p_interests) AS w WHERE w.condition_id IS NOT NULL AND w.condition_id <> ALL (p_apart)
    ), conditions AS MATERIALIZED (
        SELECT w.condition_id, w.entity_type, bool_or(w.topic IS NULL) AS open FROM wanted AS w GROUP BY w.condition_id, w.entity_type
    ), places AS MATERIALIZED (
        SELECT t.condition_id, t.entity_type, k.place
        FROM (
            SELECT DISTINCT w.condition_id, w.entity_type, w.topic
            FROM wanted AS w INNER JOIN conditions AS c ON w.condition_id = c.condition_id AND w.entity_type = c.entity_type
            WHERE NOT c.open
        ) AS t INNER JOIN given AS k ON t.topic = k.topic AND t.entity_type = k.entity_type
        UNION ALL
        SELECT c.condition_id, c.entity_type, k.place
        FROM conditions AS c INNER JOIN given AS k ON c.entity_type = k.entity_type WHERE c.open
    ), needed AS (
        SELECT
            array_agg(k.place) AS places, array_agg(k.source_id) AS source_ids, array_agg(k.seq_nr) AS seq_nrs,
            array_agg(k.db_timestamp) AS db_timestamps
        FROM (SELECT k.* FROM given AS k WHERE k.place IN (SELECT p.place FROM places AS p) ORDER BY k.place) AS k
    ), seen AS MATERIALIZED (
        SELECT n.places[row_number() OVER ()] AS place, e
        FROM needed AS n
        CROSS JOIN LATERAL projections._matchable_events_v1(n.source_ids, n.seq_nrs, n.db_timestamps) AS e
    )
    SELECT c.condition_id, e.events, e.places, w.topics, w.subscription_ids, c.open
    FROM conditions AS c
    INNER JOIN (
        SELECT
            p.condition_id, p.entity_type, array_agg(e.e ORDER BY p.place) AS events, array_agg(p.place ORDER BY p.place) AS places
        FROM places AS p INNER JOIN seen AS e ON p.place = e.place
        GROUP BY p.condition_id, p.entity_type
    ) AS e ON c.condition_id = e.condition_id AND c.entity_type = e.entity_type
    LEFT JOIN (
        SELECT w.condition_id, w.entity_type, array_agg(w.topic) AS topics, array_agg(u.subscription_id) AS subscription_ids
        FROM wanted AS w CROSS JOIN LATERAL unnest(w.subscription_ids) AS u (subscription_id)
        WHERE w.topic IS NOT NULL
        GROUP BY w.condition_id, w.entity_type
    ) AS w ON c.condition_id = w.condition_id AND c.entity_type = w.entity_type
    ORDER BY c.condition_id, c.entity_type;
END;
$$;
