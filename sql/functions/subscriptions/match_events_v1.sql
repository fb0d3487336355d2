-- Matches events of one entity type, in their order, with all subscriptions; returns how many (event, group) pairs that made.
-- Arrays run in parallel. Each event is to be given once: the transaction of the caller, who stores where the reading of the
-- log stands, sees to that.
--
-- Subscriptions without a condition are found by topic alone. A condition that fails, or takes longer than the caller's
-- statement_timeout, fails the call: ask_condition_v1 tells which it is.
CREATE OR REPLACE FUNCTION projections.match_events_v1(
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[]
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _topics text[] := ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic));
    _oldest CONSTANT timestamptz := (SELECT min(t.at) FROM unnest(p_db_timestamps) AS t (at));
    -- Whole topics: each event of the topic is for the subscription.
    _whole_topics text[];
    _whole_ids bigint[];
    -- Single events, by their place.
    _places bigint[] := '{}';
    _ids bigint[] := '{}';
    _asked record;
    _matched record;
    _count bigint;
BEGIN
    SELECT array_agg(w.topic), array_agg(w.subscription_id) INTO _whole_topics, _whole_ids
    FROM projections.wanted_topics_v1(p_entity_type, _topics) AS w WHERE w.condition_id IS NULL;

    FOR _asked IN SELECT * FROM projections.wanted_conditions_v1(p_entity_type, _topics) LOOP
        SELECT * INTO _matched FROM projections.ask_condition_v1(
            _asked.condition_id, _asked.of_types, _asked.open, _asked.topics, _asked.subscription_ids,
            p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_topics
        );
        IF _asked.of_types THEN
            _whole_topics := _whole_topics || _matched.topics;
            _whole_ids := _whole_ids || _matched.subscription_ids;
        ELSE
            _places := _places || _matched.places;
            _ids := _ids || _matched.subscription_ids;
        END IF;
    END LOOP;
    IF coalesce(cardinality(_whole_ids), 0) + cardinality(_ids) = 0 THEN
        RETURN 0;
    END IF;

    PERFORM projections.lock_matching_v1();
    IF cardinality(_ids) = 0 AND NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.since > _oldest) THEN
        WITH groups AS (
            SELECT w.topic, s.group_id, array_agg(s.subscription_id ORDER BY s.subscription_id) AS subscription_ids
            FROM unnest(_whole_topics, _whole_ids) AS w (topic, subscription_id)
            INNER JOIN projections.subscriptions AS s ON w.subscription_id = s.subscription_id
            GROUP BY w.topic, s.group_id
        )
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT g.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, g.subscription_ids
            FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
            INNER JOIN groups AS g ON e.topic = g.topic
            ORDER BY e.place, g.group_id
        ) AS m;
    ELSE
        WITH events AS (
            SELECT * FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
        ), pairs AS (
            SELECT e.place, w.subscription_id
            FROM unnest(_whole_topics, _whole_ids) AS w (topic, subscription_id) INNER JOIN events AS e ON w.topic = e.topic
            UNION ALL
            SELECT u.place, u.subscription_id FROM unnest(_places, _ids) AS u (place, subscription_id)
        )
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT g.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, g.subscription_ids
            FROM (
                SELECT p.place, s.group_id, array_agg(s.subscription_id ORDER BY s.subscription_id) AS subscription_ids
                FROM pairs AS p
                INNER JOIN events AS e ON p.place = e.place
                INNER JOIN projections.subscriptions AS s ON p.subscription_id = s.subscription_id AND s.since <= e.db_timestamp
                GROUP BY p.place, s.group_id
            ) AS g
            INNER JOIN events AS e ON g.place = e.place
            ORDER BY e.place, g.group_id
        ) AS m;
    END IF;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
