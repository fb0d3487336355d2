-- Asks one condition what matching would ask it about events: where matching fails, this tells whether it is the one.
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
    _distinct CONSTANT text[] := ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic));
    _wanted record;
BEGIN
    SELECT * INTO _wanted FROM projections.wanted_conditions_v1(p_entity_type, _distinct) AS w
    WHERE w.condition_id = p_condition_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    PERFORM projections.ask_condition_v1(
        p_condition_id,
        CASE WHEN _wanted.of_types THEN ARRAY(
            SELECT t FROM projections.types_v1(p_entity_type, _distinct) AS t WHERE _wanted.open OR t.topic = ANY (_wanted.topics)
        )
        ELSE ARRAY(
            SELECT e FROM projections.matchable_events_v1(p_source_ids, p_seq_nrs, p_db_timestamps) AS e
            WHERE _wanted.open OR e.topic = ANY (_wanted.topics)
        ) END,
        _wanted.topics, _wanted.subscription_ids, _wanted.open
    );
END;
$$;
