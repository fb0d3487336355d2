-- Asks one condition about events; one that looks at types alone about one event of each topic. Returns the topics, or the
-- places of the events, and the subscriptions that they are for.
CREATE OR REPLACE FUNCTION projections.ask_condition_v1(
    p_condition_id integer,
    p_of_types boolean,
    p_open boolean,
    p_wanted text[],
    p_subscription_ids bigint[],
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_topics text[],
    OUT topics text[],
    OUT places bigint[],
    OUT subscription_ids bigint[]
)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _events projections.matchable_events[];
    _places bigint[];
BEGIN
    IF p_of_types THEN
        SELECT array_agg(ROW(NULL, NULL, NULL, NULL, NULL, p_entity_type, t.topic, t.topic, NULL, NULL, NULL, NULL)::projections.matchable_events)
        INTO _events
        FROM (
            SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic) WHERE p_open OR t.topic = ANY (p_wanted)
        ) AS t;
    ELSE
        SELECT array_agg(e ORDER BY k.place), array_agg(k.place ORDER BY k.place) INTO _events, _places
        FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_topics)
        WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, topic, place)
        INNER JOIN projections.matchable_events AS e
            ON k.source_id = e.source_id AND k.seq_nr = e.seq_nr AND k.db_timestamp = e.db_timestamp
        WHERE p_open OR k.topic = ANY (p_wanted);
    END IF;
    EXECUTE format(
        'SELECT array_agg($1[m.place].topic), array_agg($2[m.place]), array_agg(m.subscription_id) '
        'FROM projections_conditions.condition_%s($1, $3, $4, $5) AS m', p_condition_id
    )
    INTO topics, places, subscription_ids
    USING _events, coalesce(_places, '{}'), p_wanted, p_subscription_ids, p_open;
END;
$$;
