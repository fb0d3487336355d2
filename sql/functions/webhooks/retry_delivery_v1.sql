-- Has a delivery tried again, now, whatever became of it: dead, done, or waiting for a later attempt, which this replaces. An
-- endpoint that is held back is asked at once. A tenant of NULL is any, and
-- so are states: others are refused.
--
-- Raises PJ092 when there is no such delivery, PJ093 while it is on its way, PJ094 when it is in another state, its endpoint
-- is disabled, it is behind others in an order, or its payload is gone.
CREATE OR REPLACE FUNCTION projections.retry_delivery_v1(
    p_tenant text, p_endpoint_id text, p_event_id text, p_states text[] DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _delivery projections.webhook_deliveries;
    _state text;
BEGIN
    -- Circuits before deliveries, as all do.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    SELECT d.* INTO _delivery FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = p_endpoint_id AND d.event_id = p_event_id AND (p_tenant IS NULL OR d.tenant = p_tenant)
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no delivery of event % to endpoint %', quote_literal(p_event_id), quote_literal(p_endpoint_id)
        USING ERRCODE = 'PJ092';
    ELSIF NOT _delivery.state = ANY (p_states) THEN
        RAISE EXCEPTION 'the delivery of event % to endpoint % is %, not %', quote_literal(p_event_id),
            quote_literal(p_endpoint_id), _delivery.state, array_to_string(p_states, ' or ') USING ERRCODE = 'PJ094';
    END IF;
    SELECT e.state INTO _state FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = p_endpoint_id;
    IF _delivery.state = 'leased' THEN
        RAISE EXCEPTION 'event % is on its way to endpoint %: wait for its outcome',
            quote_literal(p_event_id), quote_literal(p_endpoint_id) USING ERRCODE = 'PJ093';
    ELSIF _state = 'disabled' THEN
        RAISE EXCEPTION 'endpoint % is disabled: enable it first', quote_literal(p_endpoint_id) USING ERRCODE = 'PJ094';
    ELSIF _delivery.state = 'waiting' THEN
        RAISE EXCEPTION 'event % waits for those before it, in the order that endpoint % asks for',
            quote_literal(p_event_id), quote_literal(p_endpoint_id) USING ERRCODE = 'PJ094';
    ELSIF _delivery.data IS NULL AND NOT EXISTS (
        SELECT FROM projections.webhook_events AS v
        WHERE v.event_time = _delivery.event_time AND v.event_id = _delivery.event_id
    ) THEN
        RAISE EXCEPTION 'the payload of event % is no longer kept', quote_literal(p_event_id) USING ERRCODE = 'PJ094';
    END IF;
    UPDATE projections.webhook_deliveries AS d
    SET state = 'pending', manual = TRUE, next_at = clock_timestamp(), finished_at = NULL
    WHERE d.delivery_id = _delivery.delivery_id;
    UPDATE projections.webhook_circuits AS c SET blocked_until = clock_timestamp()
    WHERE c.endpoint_id = p_endpoint_id AND c.blocked_until > clock_timestamp();
END;
$$;
