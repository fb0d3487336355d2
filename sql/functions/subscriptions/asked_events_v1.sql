-- What is to be asked about events themselves: for each condition the events that it is to see, with their places, and the
-- subscriptions by topic. Events without a topic are left out.
CREATE OR REPLACE FUNCTION projections.asked_events_v1(
    p_entity_type text, p_source_ids text[], p_seq_nrs bigint[], p_db_timestamps timestamptz[], p_topics text[]
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
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF NOT EXISTS (SELECT FROM projections.conditions AS c WHERE NOT c.of_types AND c.quarantined_at IS NULL) THEN
        RETURN;
    END IF;
    RETURN QUERY
    WITH wanted AS MATERIALIZED (
        SELECT w.* FROM projections.wanted_conditions_v1(
            p_entity_type, ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic))
        ) AS w
        WHERE NOT w.of_types
    ), places AS (
        SELECT w.condition_id, k.place
        FROM wanted AS w
        CROSS JOIN LATERAL (SELECT DISTINCT t.topic FROM unnest(w.topics) AS t (topic)) AS t
        INNER JOIN unnest(p_topics) WITH ORDINALITY AS k (topic, place) ON t.topic = k.topic
        WHERE NOT w.open
        UNION ALL
        SELECT w.condition_id, k.place
        FROM wanted AS w CROSS JOIN generate_subscripts(p_topics, 1) AS k (place)
        WHERE w.open AND p_topics[k.place] IS NOT NULL
    ), needed AS (
        SELECT
            array_agg(k.place) AS places, array_agg(k.source_id) AS source_ids, array_agg(k.seq_nr) AS seq_nrs,
            array_agg(k.db_timestamp) AS db_timestamps
        FROM (
            SELECT k.* FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps)
            WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, place)
            WHERE k.place IN (SELECT p.place FROM places AS p)
            ORDER BY k.place
        ) AS k
    ), seen AS MATERIALIZED (
        SELECT n.places[row_number() OVER ()] AS place, e
        FROM needed AS n
        CROSS JOIN LATERAL projections.matchable_events_v1(n.source_ids, n.seq_nrs, n.db_timestamps) AS e
    )
    SELECT w.condition_id, e.events, e.places, w.topics, w.subscription_ids, w.open
    FROM wanted AS w
    INNER JOIN (
        SELECT p.condition_id, array_agg(e.e ORDER BY p.place) AS events, array_agg(p.place ORDER BY p.place) AS places
        FROM places AS p INNER JOIN seen AS e ON p.place = e.place
        GROUP BY p.condition_id
    ) AS e ON w.condition_id = e.condition_id
    ORDER BY w.condition_id;
END;
$$;
