-- Matches events of one entity type, in their order, with all subscriptions; returns how many (event, group) pairs that made.
-- Arrays run in parallel. Each event is to be given once: the transaction of the caller, who stores where the reading of the
-- log stands, sees to that. p_condition_ids and p_wanted have what interests_v1 returns for the topics and for none, should the
-- caller know it already. An event without a topic is for the subscription in p_to alone, whatever that asks for, and for none
-- where that is NULL. An event is for subscriptions that were there at its time in p_as_of; NULL: when it was committed.
--
-- An event that a condition fails on is put aside for it; what comes for those that are set apart is kept. One that takes longer than the
-- caller's statement_timeout fails the call: asking each alone about one event tells which, and with p_failed and p_errors the
-- event is put aside for those. p_behind is a condition that is asked though it is set apart: it catches up.
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
    p_to bigint[] DEFAULT NULL,
    p_as_of timestamptz[] DEFAULT NULL,
    p_failed integer[] DEFAULT NULL,
    p_errors text[] DEFAULT NULL,
    p_behind integer DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _oldest CONSTANT timestamptz := (
        SELECT least(min(t.at), min(t.as_of)) FROM unnest(p_db_timestamps, p_as_of) AS t (at, as_of)
    );
    _apart CONSTANT integer[] := array_remove(ARRAY(SELECT projections.conditions_apart_v1()), p_behind);
    -- These have failed lately: answers count, too.
    _watched CONSTANT integer[] := ARRAY(SELECT c.condition_id FROM projections.conditions AS c WHERE c.failures > 0);
    -- Who gets which event: a subscription, or, where that is NULL, all that want it of a condition.
    _places bigint[] := ARRAY(SELECT t.place FROM unnest(p_to) WITH ORDINALITY AS t (id, place) WHERE t.id IS NOT NULL ORDER BY t.place);
    _ids bigint[] := ARRAY(SELECT p_to[t.place] FROM unnest(_places) WITH ORDINALITY AS t (place, n) ORDER BY t.n);
    _conditions integer[] := array_fill(NULL::integer, ARRAY[cardinality(_places)]);
    _asked record;
    _matched record;
    _failures integer;
    _error text;
    _count bigint;
BEGIN
    IF p_condition_ids IS NULL THEN
        SELECT array_agg(i.condition_id), array_agg(i.topic), array_agg(i.group_id), array_agg(i.subscription_ids::text)
        INTO p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids
        FROM projections.interests_v1(p_entity_type, ARRAY(SELECT DISTINCT t.topic FROM unnest(p_topics) AS t (topic)) || NULL::text) AS i;
    END IF;
    FOR _asked IN
        SELECT * FROM projections.asked_events_v1(
            p_source_ids, p_seq_nrs, p_db_timestamps, p_topics, p_condition_ids, p_wanted_topics, p_wanted_ids, _apart
        )
    LOOP
        IF _asked.condition_id = ANY (p_failed) THEN
            _error := p_errors[array_position(p_failed, _asked.condition_id)];
            SELECT
                NULL::bigint[] AS places, NULL::bigint[] AS subscription_ids, ARRAY[1]::bigint[] AS failed, ARRAY[_error] AS errors
            INTO _matched;
        ELSE
            SELECT * INTO _matched FROM projections.ask_condition_v1(
                _asked.condition_id, _asked.events, _asked.topics, _asked.subscription_ids, _asked.open
            );
        END IF;
        _failures := coalesce(cardinality(_matched.failed), 0);
        IF _failures > 0 THEN
            PERFORM projections.put_aside_v1(
                _asked.condition_id, p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics, p_as_of,
                ARRAY(SELECT _asked.places[m.place] FROM unnest(_matched.failed) WITH ORDINALITY AS m (place, n) ORDER BY m.n),
                _matched.errors
            );
        END IF;
        IF _failures > 0 OR _asked.condition_id = ANY (_watched) THEN
            PERFORM projections.judge_condition_v1(
                _asked.condition_id,
                -- To find that it took too long has cost time, of others too: three in a row are enough.
                CASE WHEN _asked.condition_id = ANY (p_failed) THEN 4 ELSE _failures END,
                cardinality(_asked.events) - _failures, _matched.errors[1]
            );
        END IF;
        _places := _places || ARRAY(
            SELECT _asked.places[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n
        );
        _ids := _ids || _matched.subscription_ids;
        _conditions := _conditions || array_fill(_asked.condition_id, ARRAY[coalesce(cardinality(_matched.places), 0)]);
    END LOOP;
    IF cardinality(_apart) > 0 THEN
        PERFORM projections.keep_unasked_v1(
            _apart, p_condition_ids, p_wanted_topics, p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_topics, p_as_of
        );
    END IF;
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
        SELECT * FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics, p_as_of)
        WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, as_of, place)
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
            WHERE s.subscription_id = p.subscription_id AND s.since <= coalesce(e.as_of, e.db_timestamp) LIMIT 1
        ) AS s
        GROUP BY e.place, s.group_id, e.slice, e.seq_nr, e.db_timestamp, e.source_id
        ORDER BY e.place, s.group_id
    ) AS m;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
