-- Decides about a delivery. 'retry' has it tried again, now, whatever its outcome: dead, done, or waiting for a later attempt,
-- which this replaces; an endpoint that is held back is asked at once. 'drop': it is not tried again, and what waits for it in
-- an order goes on. A tenant of NULL is any, and so are states: others are refused.
--
-- Raises PJ092 when there is no such delivery, PJ093 while it is on its way, and PJ094 when it is in another state; when it is to
-- be tried again, and it was erased, its expiry has passed, its endpoint is disabled, it is behind others in an order, or its
-- payload is gone; when it is to be dropped, and has arrived, has expired or was erased. PJ096: there is no such decision.
CREATE OR REPLACE FUNCTION projections._decide_delivery_v1(
    p_decision text, p_tenant text, p_endpoint_id text, p_event_id text, p_states text[] DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _delivery projections.webhook_deliveries;
    _event CONSTANT text := quote_literal(p_event_id);
    _endpoint CONSTANT text := quote_literal(p_endpoint_id);
    _refusal text;
BEGIN
    -- Circuits before deliveries, as all do: nobody finishes another of its order at once, each leaving the next to the other.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    SELECT d.* INTO _delivery FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = p_endpoint_id AND d.event_id = p_event_id AND (p_tenant IS NULL OR d.tenant = p_tenant)
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no delivery of event % to endpoint %', _event, _endpoint USING ERRCODE = 'PJ092';
    ELSIF NOT _delivery.state = ANY (p_states) THEN
        RAISE EXCEPTION 'the delivery of event % to endpoint % is %, not %', _event, _endpoint, _delivery.state,
            array_to_string(p_states, ' or ') USING ERRCODE = 'PJ094';
    ELSIF _delivery.state = 'leased' THEN
        RAISE EXCEPTION 'event % is on its way to endpoint %: wait for its outcome', _event, _endpoint USING ERRCODE = 'PJ093';
    END IF;
    IF p_decision = 'drop' THEN
        IF _delivery.state = 'done' THEN
            RAISE EXCEPTION 'event % has arrived at endpoint %', _event, _endpoint USING ERRCODE = 'PJ094';
        ELSIF _delivery.state IN ('expired', 'erased') THEN
            RAISE EXCEPTION 'event % is % for endpoint %: it is not tried again', _event, _delivery.state, _endpoint
            USING ERRCODE = 'PJ094';
        END IF;
        UPDATE projections.webhook_deliveries AS d
        SET state = 'dropped', manual = FALSE, finished_at = clock_timestamp(), data = NULL
        WHERE d.delivery_id = _delivery.delivery_id;
        PERFORM projections._follow_on_v1(ARRAY[_delivery.delivery_id]);
        RETURN;
    ELSIF p_decision IS DISTINCT FROM 'retry' THEN
        RAISE EXCEPTION 'a delivery is to retry or to drop, not to %', coalesce(p_decision, 'NULL') USING ERRCODE = 'PJ096';
    END IF;
    _refusal := CASE
        WHEN _delivery.erased
            THEN format('the payload of event %s was erased: nothing is left to send', _event)
        WHEN _delivery.expires_at <= clock_timestamp()
            THEN format('event %s expired at %s: send it as a new message', _event, to_json(_delivery.expires_at) #>> '{}')
        WHEN (SELECT e.state FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = p_endpoint_id) = 'disabled'
            THEN format('endpoint %s is disabled: enable it first', _endpoint)
        WHEN _delivery.state = 'waiting'
            THEN format('event %s waits for those before it, in the order that endpoint %s asks for', _event, _endpoint)
        WHEN _delivery.data IS NULL AND NOT EXISTS (
            SELECT FROM projections.webhook_events AS v
            WHERE v.event_time = _delivery.event_time AND v.event_id = _delivery.event_id AND v.data IS NOT NULL
        )
            THEN format('the payload of event %s is no longer kept', _event)
    END;
    IF _refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', _refusal USING ERRCODE = 'PJ094';
    END IF;
    UPDATE projections.webhook_deliveries AS d
    SET state = 'pending', manual = TRUE, next_at = clock_timestamp(), finished_at = NULL
    WHERE d.delivery_id = _delivery.delivery_id;
    UPDATE projections.webhook_circuits AS c SET blocked_until = clock_timestamp()
    WHERE c.endpoint_id = p_endpoint_id AND c.blocked_until > clock_timestamp();
END;
$$;
