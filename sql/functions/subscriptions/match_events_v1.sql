-- Matches events of one entity type, in their order, with all subscriptions; returns how many (event, group) pairs that made.
-- Arrays run in parallel. Each event is to be given once: the transaction of the caller, who stores where the reading of the
-- log stands, sees to that. p_whole has what whole_topics_v1 returns for the topics, should the caller know it already.
-- An event without a topic is for the subscription in p_to alone, whatever that asks for, and for none where that is NULL.
--
-- A condition that fails, or takes longer than the caller's statement_timeout, fails the call; asking each alone tells which.
CREATE OR REPLACE FUNCTION projections.match_events_v1(
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_whole_topics text[] DEFAULT NULL,
    p_whole_groups integer[] DEFAULT NULL,
    p_whole_subscriptions text[] DEFAULT NULL,
    p_to bigint[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _oldest CONSTANT timestamptz := (SELECT min(t.at) FROM unnest(p_db_timestamps) AS t (at));
    _places bigint[] := ARRAY(SELECT t.place FROM unnest(p_to) WITH ORDINALITY AS t (id, place) WHERE t.id IS NOT NULL ORDER BY t.place);
    _ids bigint[] := ARRAY(SELECT p_to[t.place] FROM unnest(_places) WITH ORDINALITY AS t (place, n) ORDER BY t.n);
    _asked record;
    _matched record;
    _count bigint;
BEGIN
    IF p_whole_topics IS NULL THEN
        SELECT array_agg(w.topic), array_agg(w.group_id), array_agg(w.subscription_ids::text)
        INTO p_whole_topics, p_whole_groups, p_whole_subscriptions
        FROM projections.whole_topics_v1(p_entity_type, ARRAY(
            SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic) WHERE t.topic IS NOT NULL
        )) AS w;
    END IF;
    FOR _asked IN
        SELECT * FROM projections.asked_events_v1(p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_topics)
    LOOP
        SELECT * INTO _matched FROM projections.ask_condition_v1(
            _asked.condition_id, _asked.events, _asked.topics, _asked.subscription_ids, _asked.open
        );
        _places := _places || ARRAY(
            SELECT _asked.places[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n
        );
        _ids := _ids || _matched.subscription_ids;
    END LOOP;
    IF coalesce(cardinality(p_whole_topics), 0) + cardinality(_ids) = 0 THEN
        RETURN 0;
    END IF;

    PERFORM projections.lock_matching_v1();
    IF cardinality(_ids) = 0 AND NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.since > _oldest) THEN
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT w.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, w.subscription_ids
            FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
            INNER JOIN (
                SELECT w.topic, w.group_id, w.subscription_ids::bigint[] AS subscription_ids
                FROM unnest(p_whole_topics, p_whole_groups, p_whole_subscriptions) AS w (topic, group_id, subscription_ids)
            ) AS w ON e.topic = w.topic
            ORDER BY e.place, w.group_id
        ) AS m;
    ELSE
        WITH given AS (
            SELECT * FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
        ), pairs AS (
            SELECT e.place, u.subscription_id
            FROM unnest(p_whole_topics, p_whole_subscriptions) AS w (topic, subscription_ids)
            INNER JOIN given AS e ON w.topic = e.topic
            CROSS JOIN LATERAL unnest(w.subscription_ids::bigint[]) AS u (subscription_id)
            UNION ALL
            SELECT u.place, u.subscription_id FROM unnest(_places, _ids) AS u (place, subscription_id)
        )
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            -- Grouped by all that is stored of an event: joining it once more is planned as a loop over all of them.
            SELECT
                s.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id,
                array_agg(s.subscription_id ORDER BY s.subscription_id)
            FROM pairs AS p
            INNER JOIN given AS e ON p.place = e.place
            INNER JOIN projections.subscriptions AS s ON p.subscription_id = s.subscription_id AND s.since <= e.db_timestamp
            GROUP BY e.place, s.group_id, e.slice, e.seq_nr, e.db_timestamp, e.source_id
            ORDER BY e.place, s.group_id
        ) AS m;
    END IF;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
