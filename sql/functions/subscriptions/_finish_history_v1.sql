-- Ends the catching up of a subscription with the past: matches with it what the matching of the log has passed since the last
-- page, where these are p_limit events at most, and leaves all others to that. FALSE where that cannot be done yet.
--
-- Meanwhile nothing else is matched: so what was passed is what offsets say, and each event is matched once, by one of both, those of a
-- source in their order. It does not wait for long to begin. p_error is as for _match_history_v1.
CREATE OR REPLACE FUNCTION projections._finish_history_v1(p_subscription_id bigint, p_limit integer, p_error text DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET lock_timeout = '200ms'
AS $$
DECLARE
    _of projections.subscriptions;
    _horizon timestamptz;
    _ready boolean;
    _last record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections past'), (p_subscription_id & 2147483647)::integer) THEN
        RETURN FALSE;
    END IF;
    BEGIN
        PERFORM pg_advisory_xact_lock(hashtext('slice-projections history'), 0);
        SELECT s.* INTO _of FROM projections.subscriptions AS s
        WHERE s.subscription_id = p_subscription_id AND s.starts_at IS NOT NULL FOR NO KEY UPDATE;
    EXCEPTION
        WHEN lock_not_available THEN
            RETURN FALSE;
    END;
    SELECT
        min(r.horizon), bool_and(h.subscription_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM projections.imports AS i
            WHERE i.import_id > r.import_id AND coalesce(i.entity_type = ANY (_of.entity_types), TRUE)
        ))
    INTO _horizon, _ready
    FROM projections.projections AS p
    INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
    LEFT JOIN projections.subscription_history AS h ON h.subscription_id = p_subscription_id
    WHERE p.name = 'matching';
    IF _of.subscription_id IS NULL OR _ready IS NOT TRUE
    -- What its condition fails on may be asked again, for all subscriptions that have it by then.
    OR _of.condition_id IN (SELECT projections._conditions_apart_v1())
    OR EXISTS (
        SELECT FROM projections.unanswered AS u
        WHERE u.condition_id = _of.condition_id AND u.db_timestamp >= _horizon AND u.subscription_id IS NULL
    )
    -- What is due goes to those who were there by then, and this one is said to be there from here on.
    OR EXISTS (SELECT FROM projections.directed_events AS d WHERE NOT d.matched AND d.not_before <= _horizon) THEN
        RETURN FALSE;
    END IF;
    SELECT
        count(*) AS read, array_agg(
            (n.source_id, n.seq_nr, n.db_timestamp, n.slice, n.topic, n.db_timestamp, p_subscription_id, n.entity_type)::projections.events_to_match
        ) FILTER (WHERE n.topic IS NOT NULL AND n.passed) AS events
    INTO _last FROM projections._next_history_v1(p_subscription_id, p_limit + 1, TRUE) AS n;
    IF _last.read > p_limit THEN
        RETURN FALSE;
    ELSIF _last.events IS NOT NULL THEN
        PERFORM projections._match_events_v1(
            _last.events, ARRAY(SELECT i FROM projections._history_interests_v1(p_subscription_id, _last.events) AS i),
            jsonb_build_object(coalesce(_of.condition_id, 0), p_error), _of.condition_id
        );
    END IF;
    UPDATE projections.subscriptions AS s
    SET since = greatest(_of.starts_at, _horizon), starts_at = NULL
    WHERE s.subscription_id = p_subscription_id;
    DELETE FROM projections.subscription_history AS h WHERE h.subscription_id = p_subscription_id;
    RETURN TRUE;
END;
$$;
