-- Takes back attempts whose lease is over: whoever made them has died, or is cut off. They are used up, and logged as failed
-- with the code 'worker_lost'; the delivery goes on at once, or is dead when its attempts are. The endpoint is not to blame.
-- Endpoints that somebody holds are passed over: the next call takes theirs. Returns how many.
CREATE OR REPLACE FUNCTION projections.reap_deliveries_v1(p_limit integer DEFAULT 1000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _free text[];
    _lost bigint[];
BEGIN
    _free := ARRAY(
        SELECT c.endpoint_id FROM projections.webhook_circuits AS c
        WHERE c.endpoint_id IN (
            SELECT d.endpoint_id FROM projections.webhook_deliveries AS d WHERE d.state = 'leased' AND d.lease_until < _now
        )
        FOR NO KEY UPDATE SKIP LOCKED
    );
    _lost := ARRAY(
        SELECT d.delivery_id FROM projections.webhook_deliveries AS d
        WHERE d.state = 'leased' AND d.lease_until < _now AND d.endpoint_id = ANY (_free) LIMIT p_limit
    );
    IF cardinality(_lost) = 0 THEN
        RETURN 0;
    END IF;
    PERFORM projections.lock_deliveries_v1(_lost);
    -- Of some the outcome may have come meanwhile.
    SELECT array_agg(d.delivery_id) INTO _lost FROM projections.webhook_deliveries AS d
    WHERE d.delivery_id = ANY (_lost) AND d.state = 'leased' AND d.lease_until < _now;
    IF _lost IS NULL THEN
        RETURN 0;
    END IF;
    PERFORM projections.log_attempts_v1(
        array_agg(projections.uuid7_v1(_now)::text), array_agg(d.tenant), array_agg(d.event_id), array_agg(d.event_time),
        array_agg(d.topic), array_agg(d.endpoint_id), array_agg('webhook'::text), array_agg(d.attempts), array_agg(d.manual),
        array_agg('failed'::text), array_agg(_now), array_agg('worker_lost'::text), array_agg(''::text), array_agg('0'::interval)
    )
    FROM projections.webhook_deliveries AS d WHERE d.delivery_id = ANY (_lost);
    UPDATE projections.webhook_deliveries AS d SET
        state = CASE WHEN o.dead THEN 'dead' ELSE 'pending' END,
        manual = FALSE, next_at = _now, last_code = 'worker_lost', lease_until = NULL, lease_token = NULL,
        finished_at = CASE WHEN o.dead THEN _now END,
        data = CASE WHEN o.dead THEN coalesce(d.data, (
            SELECT v.data FROM projections.webhook_events AS v WHERE v.event_time = d.event_time AND v.event_id = d.event_id
        )) ELSE d.data END
    FROM (
        SELECT d.delivery_id, d.attempts > jsonb_array_length(projections.policy_within_limits_v1(e.policy) -> 'schedule') AS dead
        FROM projections.webhook_deliveries AS d
        INNER JOIN projections.webhook_endpoints AS e ON d.endpoint_id = e.endpoint_id
        WHERE d.delivery_id = ANY (_lost)
    ) AS o
    WHERE d.delivery_id = o.delivery_id;
    PERFORM projections.follow_on_v1(_lost);
    RETURN cardinality(_lost);
END;
$$;
