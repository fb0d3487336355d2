-- Matches events of one entity type, in their order, with all subscriptions; returns how many (event, group) pairs that made.
-- Arrays run in parallel. Each event is to be given once: the transaction of the caller, who stores where the reading of the
-- log stands, sees to that. p_condition_ids and p_wanted have what interests_v1 returns for the topics and for none, should the
-- caller know it already. An event without a topic is for the subscription in p_to alone, whatever that asks for, and for none
-- where that is NULL.
--
-- A condition that fails, or takes longer than the caller's statement_timeout, fails the call; asking each alone tells which.
CREATE OR REPLACE FUNCTION projections.match_events_v1(
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_condition_ids integer[] DEFAULT NULL,
    p_wanted_topics text[] DEFAULT NULL,
    p_wanted_groups integer[] DEFAULT NULL,
    p_wanted_ids text[] DEFAULT NULL,
    p_to bigint[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _oldest CONSTANT timestamptz := (SELECT min(t.at) FROM unnest(p_db_timestamps) AS t (at));
    -- Who gets which event: a subscription, or, where that is NULL, all that want it of a condition.
    _places bigint[] := ARRAY(SELECT t.place FROM unnest(p_to) WITH ORDINALITY AS t (id, place) WHERE t.id IS NOT NULL ORDER BY t.place);
    _ids bigint[] := ARRAY(SELECT p_to[t.place] FROM unnest(_places) WITH ORDINALITY AS t (place, n) ORDER BY t.n);
    _conditions integer[] := array_fill(NULL::integer, ARRAY[cardinality(_places)]);
    _asked record;
    _matched record;
    _count bigint;
BEGIN
    IF p_condition_ids IS NULL THEN
        SELECT array_agg(i.condition_id), array_agg(i.topic), array_agg(i.group_id), array_agg(i.subscription_ids::text)
        INTO p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids
        FROM projections.interests_v1(p_entity_type, ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic)) || NULL::text) AS i;
    END IF;
    FOR _asked IN
        SELECT * FROM projections.asked_events_v1(
            p_source_ids, p_seq_nrs, p_db_timestamps, p_topics, p_condition_ids, p_wanted_topics, p_wanted_ids
        )
    LOOP
        SELECT * INTO _matched FROM projections.ask_condition_v1(
            _asked.condition_id, _asked.events, _asked.topics, _asked.subscription_ids, _asked.open
        );
        _places := _places || ARRAY(
            SELECT _asked.places[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n
        );
        _ids := _ids || _matched.subscription_ids;
        _conditions := _conditions || array_fill(_asked.condition_id, ARRAY[coalesce(cardinality(_matched.places), 0)]);
    END LOOP;
    IF cardinality(_places) = 0 AND coalesce(cardinality(p_condition_ids) - cardinality(array_remove(p_condition_ids, NULL)), 0) = 0 THEN
        RETURN 0;
    END IF;

    PERFORM projections.lock_matching_v1();
    IF cardinality(array_remove(_ids, NULL)) = 0 AND NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.since > _oldest) THEN
        RETURN projections.match_as_given_v1(
            p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics,
            p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids, _conditions, _places
        );
    END IF;
    WITH given AS (
        SELECT * FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
        WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
    ), wanted AS MATERIALIZED (
        SELECT w.condition_id, w.topic, w.subscription_ids::bigint[] AS subscription_ids
        FROM unnest(p_condition_ids, p_wanted_topics, p_wanted_ids) AS w (condition_id, topic, subscription_ids)
    ), answers AS MATERIALIZED (
        SELECT * FROM unnest(_conditions, _places, _ids) AS a (condition_id, place, subscription_id)
    ), pairs AS (
        SELECT a.place, a.subscription_id FROM answers AS a WHERE a.subscription_id IS NOT NULL
        UNION ALL
        SELECT f.place, u.subscription_id
        FROM (
            SELECT e.place, w.subscription_ids FROM given AS e INNER JOIN wanted AS w ON e.topic = w.topic
            WHERE w.condition_id IS NULL
            UNION ALL
            SELECT a.place, w.subscription_ids
            FROM answers AS a
            INNER JOIN given AS e ON a.place = e.place
            INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND e.topic = w.topic
            WHERE a.subscription_id IS NULL
            UNION ALL
            SELECT a.place, w.subscription_ids
            FROM answers AS a INNER JOIN wanted AS w ON a.condition_id = w.condition_id
            WHERE a.subscription_id IS NULL AND w.topic IS NULL
        ) AS f CROSS JOIN LATERAL unnest(f.subscription_ids) AS u (subscription_id)
    )
    INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
    SELECT nextval('projections.match_ids'), m.* FROM (
        -- Grouped by all that is stored of an event: joining it once more is planned as a loop over all of them.
        SELECT
            s.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id,
            array_agg(p.subscription_id ORDER BY p.subscription_id)
        FROM pairs AS p
        INNER JOIN given AS e ON p.place = e.place
        CROSS JOIN LATERAL (
            SELECT s.group_id FROM projections.subscriptions AS s
            WHERE s.subscription_id = p.subscription_id AND s.since <= e.db_timestamp LIMIT 1
        ) AS s
        GROUP BY e.place, s.group_id, e.slice, e.seq_nr, e.db_timestamp, e.source_id
        ORDER BY e.place, s.group_id
    ) AS m;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
