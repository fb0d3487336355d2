-- Drops a delivery: it is not tried again, and what waits for it in an order goes on. A tenant of NULL is any, and
-- so are states: others are refused.
-- Raises PJ092 when there is no such delivery, PJ093 while it is on its way, PJ094 when it is done, or in another
-- state.
CREATE OR REPLACE FUNCTION projections.drop_delivery_v1(
    p_tenant text, p_endpoint_id text, p_event_id text, p_states text[] DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _delivery projections.webhook_deliveries;
BEGIN
    -- So that nobody finishes another of its order at once, and each leaves the next to the other.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    SELECT d.* INTO _delivery FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = p_endpoint_id AND d.event_id = p_event_id AND (p_tenant IS NULL OR d.tenant = p_tenant)
    FOR NO KEY UPDATE;  -- the next of its order is locked after it, as all do
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no delivery of event % to endpoint %', quote_literal(p_event_id), quote_literal(p_endpoint_id)
        USING ERRCODE = 'PJ092';
    ELSIF NOT _delivery.state = ANY (p_states) THEN
        RAISE EXCEPTION 'the delivery of event % to endpoint % is %, not %', quote_literal(p_event_id),
            quote_literal(p_endpoint_id), _delivery.state, array_to_string(p_states, ' or ') USING ERRCODE = 'PJ094';
    ELSIF _delivery.state = 'leased' THEN
        RAISE EXCEPTION 'event % is on its way to endpoint %: wait for its outcome',
            quote_literal(p_event_id), quote_literal(p_endpoint_id) USING ERRCODE = 'PJ093';
    ELSIF _delivery.state = 'done' THEN
        RAISE EXCEPTION 'event % has arrived at endpoint %', quote_literal(p_event_id), quote_literal(p_endpoint_id)
        USING ERRCODE = 'PJ094';
    END IF;
    UPDATE projections.webhook_deliveries AS d
    SET state = 'dropped', manual = FALSE, finished_at = clock_timestamp(), data = NULL
    WHERE d.delivery_id = _delivery.delivery_id;
    PERFORM projections.follow_on_v1(ARRAY[_delivery.delivery_id]);
END;
$$;
