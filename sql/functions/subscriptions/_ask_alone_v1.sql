-- Asks one condition what matching would ask it about events: where matching takes too long, this tells whether it is the one.
CREATE OR REPLACE FUNCTION projections._ask_alone_v1(
    p_condition_id integer,
    p_entity_types text[],
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_topics text[]
)
RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM projections._ask_condition_v1(a.condition_id, a.events, a.topics, a.subscription_ids, a.open)
    FROM projections._asked_events_v1(
        ARRAY(
            SELECT (e.source_id, e.seq_nr, e.db_timestamp, NULL, e.topic, e.db_timestamp, NULL, e.entity_type)::projections.events_to_match
            FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_topics, p_entity_types)
            AS e (source_id, seq_nr, db_timestamp, topic, entity_type)
        ),
        ARRAY(
            SELECT i
            FROM (
                SELECT t.entity_type, array_agg(DISTINCT t.topic) AS topics
                FROM unnest(p_entity_types, p_topics) AS t (entity_type, topic) GROUP BY t.entity_type
            ) AS t
            CROSS JOIN LATERAL projections._interests_v1(t.entity_type, t.topics || NULL::text, p_condition_id) AS i
        )
    ) AS a;
END;
$$;
