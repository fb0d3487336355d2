-- Asks one condition what matching would ask it about events: where matching takes too long, this tells whether it is the one.
CREATE OR REPLACE FUNCTION projections.ask_alone_v1(
    p_condition_id integer,
    p_entity_type text,
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
DECLARE
    _wanted record;
BEGIN
    SELECT array_agg(i.topic) AS topics, array_agg(i.subscription_id) AS subscription_ids, coalesce(bool_or(i.topic IS NULL), FALSE) AS open
    INTO _wanted
    FROM (
        SELECT i.topic, u.subscription_id
        FROM projections.interests_v1(
            p_entity_type, ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic)) || NULL::text, p_condition_id
        ) AS i
        CROSS JOIN LATERAL unnest(i.subscription_ids) AS u (subscription_id)
    ) AS i;
    PERFORM projections.ask_condition_v1(
        p_condition_id,
        ARRAY(
            SELECT e FROM projections.matchable_events_v1(p_source_ids, p_seq_nrs, p_db_timestamps) AS e
            WHERE _wanted.open OR e.topic = ANY (_wanted.topics)
        ),
        _wanted.topics, _wanted.subscription_ids, _wanted.open
    );
END;
$$;
