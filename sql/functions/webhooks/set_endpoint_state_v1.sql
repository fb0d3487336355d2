-- Makes an endpoint active, paused or disabled, and says so in the journal. Its deliveries stay as they are: they go on when it
-- is active, and then it starts with a clean slate. A tenant of NULL is any. Raises PJ090 and PJ091.
CREATE OR REPLACE FUNCTION projections.set_endpoint_state_v1(p_tenant text, p_endpoint_id text, p_state text, p_reason text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _tenant text;
    _was text;
BEGIN
    IF p_state IS NULL OR p_state NOT IN ('active', 'paused', 'disabled') THEN
        RAISE EXCEPTION 'an endpoint is active, paused or disabled, not %', coalesce(p_state, 'NULL') USING ERRCODE = 'PJ090';
    END IF;
    -- Circuits before endpoints, as who judges an endpoint locks them.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    SELECT e.tenant, e.state INTO _tenant, _was FROM projections.webhook_endpoints AS e
    WHERE e.endpoint_id = p_endpoint_id AND (p_tenant IS NULL OR e.tenant = p_tenant) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no endpoint %', quote_literal(p_endpoint_id) USING ERRCODE = 'PJ091';
    END IF;
    IF _was = p_state THEN
        RETURN;
    END IF;
    UPDATE projections.webhook_endpoints AS e
    SET state = p_state, reason = p_reason, version = e.version + 1, updated_at = clock_timestamp()
    WHERE e.endpoint_id = p_endpoint_id;
    IF p_state = 'active' THEN
        UPDATE projections.webhook_circuits AS c
        SET failures = 0, failing_since = NULL, blocked_until = '1970-01-01T00:00:00Z', opened = 0
        WHERE c.endpoint_id = p_endpoint_id;
    END IF;
    PERFORM projections.tell_of_endpoint_v1(
        p_endpoint_id, _tenant,
        CASE p_state WHEN 'active' THEN 'WebhookEndpointEnabled' WHEN 'paused' THEN 'WebhookEndpointPaused' ELSE 'WebhookEndpointDisabled' END,
        json_build_object('reason', p_reason)
    );
END;
$$;
