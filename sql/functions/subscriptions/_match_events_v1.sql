-- Matches events, in their order, with all subscriptions; returns how many (event, group) pairs that made.
-- Each event is to be given once: the transaction of the caller, who stores where the reading of the log stands, sees to that.
-- p_interests has what _interests_v1 returns for their types and topics, and for none, should the caller know it already.
--
-- An event that a condition fails on is put aside for it; what comes for those that are set apart is kept. One that takes longer
-- than the caller's statement_timeout fails the call: asking each alone about one event tells which, and with p_failed, an object
-- of errors by condition, the events are put aside for those. p_behind is the one condition that is asked, though it is set apart:
-- it catches up. With p_late events come out of the order of their sources: they are also for subscriptions that catch up.
--
-- Whoever ends the catching up of a subscription with the past waits for the lock that is taken here, and keeps others from it: what
-- has been matched by then is what offsets say.
CREATE OR REPLACE FUNCTION projections._match_events_v1(
    p_events projections.events_to_match[],
    p_interests projections.interests[] DEFAULT NULL,
    p_failed jsonb DEFAULT NULL,
    p_behind integer DEFAULT NULL,
    p_late boolean DEFAULT FALSE
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _oldest CONSTANT timestamptz := (SELECT min(e.as_of) FROM unnest(p_events) AS e);
    _apart CONSTANT integer[] := array_remove(ARRAY(SELECT projections._conditions_apart_v1()), p_behind);
    -- These have failed lately: answers count, too.
    _watched CONSTANT integer[] := ARRAY(SELECT c.condition_id FROM projections.conditions AS c WHERE c.failures > 0);
    -- Who gets which event: a subscription, or, where that is NULL, all that want it of a condition.
    _places bigint[];
    _ids bigint[];
    _conditions integer[];
    _asked record;
    _matched record;
    _failures integer;
    -- What conditions failed on.
    _failed_places bigint[] := '{}';
    _failed_conditions integer[] := '{}';
    _errors text[] := '{}';
    _error text;
    _count bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(hashtext('slice-projections history'), 0);
    SELECT
        coalesce(array_agg(e.ordinality), '{}'), coalesce(array_agg(e.subscription_id), '{}'),
        coalesce(array_agg(NULL::integer), '{}')
    INTO _places, _ids, _conditions
    FROM unnest(p_events) WITH ORDINALITY AS e WHERE e.subscription_id IS NOT NULL AND e.topic IS NULL;
    IF p_interests IS NULL THEN
        p_interests := ARRAY(
            SELECT i
            FROM (
                SELECT e.entity_type, array_agg(DISTINCT e.topic) AS topics
                FROM unnest(p_events) AS e WHERE e.topic IS NOT NULL GROUP BY e.entity_type
            ) AS t
            CROSS JOIN LATERAL projections._interests_v1(t.entity_type, t.topics || NULL::text, p_behind) AS i
        );
    END IF;
    FOR _asked IN SELECT * FROM projections._asked_events_v1(p_events, p_interests, _apart) LOOP
        _error := p_failed ->> _asked.condition_id::text;
        IF _error IS NOT NULL THEN
            SELECT
                NULL::bigint[] AS places, NULL::bigint[] AS subscription_ids, ARRAY[1]::bigint[] AS failed, ARRAY[_error] AS errors
            INTO _matched;
        ELSE
            SELECT * INTO _matched FROM projections._ask_condition_v1(
                _asked.condition_id, _asked.events, _asked.topics, _asked.subscription_ids, _asked.open
            );
        END IF;
        _failures := coalesce(cardinality(_matched.failed), 0);
        IF _failures > 0 THEN
            _failed_places := _failed_places || ARRAY(
                SELECT _asked.places[f.place] FROM unnest(_matched.failed) WITH ORDINALITY AS f (place, n) ORDER BY f.n
            );
            _errors := _errors || _matched.errors;
            _failed_conditions := _failed_conditions || array_fill(_asked.condition_id, ARRAY[_failures]);
        END IF;
        IF _failures > 0 OR _asked.condition_id = ANY (_watched) THEN
            PERFORM projections._judge_condition_v1(
                _asked.condition_id,
                -- To find that it took too long has cost time, of others too: three in a row are enough.
                CASE WHEN _error IS NOT NULL THEN 4 ELSE _failures END,
                cardinality(_asked.events) - _failures, _matched.errors[1]
            );
        END IF;
        _places := _places || ARRAY(
            SELECT _asked.places[m.place] FROM unnest(_matched.places) WITH ORDINALITY AS m (place, n) ORDER BY m.n
        );
        _ids := _ids || _matched.subscription_ids;
        _conditions := _conditions || array_fill(_asked.condition_id, ARRAY[coalesce(cardinality(_matched.places), 0)]);
    END LOOP;
    IF cardinality(_failed_places) > 0 THEN
        INSERT INTO projections.unanswered AS u (
            condition_id, entity_type, source_id, seq_nr, db_timestamp, slice, topic, as_of, error, due, subscription_id
        )
        SELECT
            f.condition_id, e.entity_type, e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.topic, e.as_of,
            left(f.error, 2000), FALSE, e.subscription_id
        FROM unnest(_failed_conditions, _failed_places, _errors) AS f (condition_id, place, error)
        CROSS JOIN LATERAL unnest(ARRAY[p_events[f.place]]) AS e
        ORDER BY f.condition_id, f.place
        -- It was asked again, and failed again.
        ON CONFLICT (condition_id, source_id, seq_nr, coalesce(subscription_id, 0)) DO UPDATE
        SET error = excluded.error, due = FALSE, set_apart_at = clock_timestamp();
    END IF;
    IF cardinality(_apart) > 0 THEN
        PERFORM projections._keep_unasked_v1(_apart, p_events, p_interests);
    END IF;
    IF cardinality(_places) = 0 AND NOT EXISTS (SELECT FROM unnest(p_interests) AS w WHERE w.condition_id IS NULL) THEN
        RETURN 0;
    END IF;

    PERFORM projections._lock_matching_v1();
    IF cardinality(array_remove(_ids, NULL)) = 0 AND NOT EXISTS (SELECT FROM unnest(p_events) AS e WHERE e.subscription_id IS NOT NULL)
    AND NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.since > _oldest) THEN
        RETURN projections._match_as_given_v1(p_events, p_interests, _conditions, _places);
    END IF;
    WITH given AS (
        SELECT * FROM unnest(p_events) WITH ORDINALITY
    ), wanted AS MATERIALIZED (
        SELECT * FROM unnest(p_interests)
    ), answers AS MATERIALIZED (
        SELECT * FROM unnest(_conditions, _places, _ids) AS a (condition_id, place, subscription_id)
    ), pairs AS (
        SELECT a.place, a.subscription_id FROM answers AS a WHERE a.subscription_id IS NOT NULL
        UNION ALL
        SELECT f.place, u.subscription_id
        FROM (
            SELECT e.ordinality AS place, w.subscription_ids FROM given AS e
            INNER JOIN wanted AS w ON e.topic = w.topic AND e.entity_type = w.entity_type
            WHERE w.condition_id IS NULL
            UNION ALL
            SELECT a.place, w.subscription_ids
            FROM answers AS a
            INNER JOIN given AS e ON a.place = e.ordinality
            INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND e.topic = w.topic AND e.entity_type = w.entity_type
            WHERE a.subscription_id IS NULL
            UNION ALL
            SELECT a.place, w.subscription_ids
            FROM answers AS a
            INNER JOIN given AS e ON a.place = e.ordinality
            INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND e.entity_type = w.entity_type
            WHERE a.subscription_id IS NULL AND w.topic IS NULL
        ) AS f CROSS JOIN LATERAL unnest(f.subscription_ids) AS u (subscription_id)
    )
    INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
    SELECT nextval('projections.match_ids'), m.* FROM (
        -- Grouped by all that is stored of an event: joining it again is planned as a loop over all of them.
        SELECT
            s.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id,
            array_agg(p.subscription_id ORDER BY p.subscription_id)
        FROM pairs AS p
        INNER JOIN given AS e ON p.place = e.ordinality
        CROSS JOIN LATERAL (
            SELECT s.group_id FROM projections.subscriptions AS s
            WHERE s.subscription_id = p.subscription_id AND (e.subscription_id IS NULL OR e.subscription_id = s.subscription_id)
            AND (s.since <= e.as_of OR e.subscription_id IS NOT NULL OR p_late AND s.starts_at <= e.as_of)
            LIMIT 1
        ) AS s
        GROUP BY e.ordinality, s.group_id, e.slice, e.seq_nr, e.db_timestamp, e.source_id
        ORDER BY e.ordinality, s.group_id
    ) AS m;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
