-- Makes an endpoint active, paused or disabled, and says so in the journal. Its deliveries stay as they are: they go on when it
-- is active, and then it starts with a clean slate. A tenant of NULL is any. Gives the row as it is written.
--
-- Raises PJ090, PJ091, PJ097 when it is in none of the states that are expected, where any are, and PJ099 when it has another
-- version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._set_endpoint_state_v1(
    p_tenant text, p_endpoint_id text, p_state text, p_reason text, p_expected text [] DEFAULT NULL,
    p_version integer DEFAULT NULL
)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _endpoint projections.webhook_endpoints;
BEGIN
    IF p_state IS NULL OR p_state NOT IN ('active', 'paused', 'disabled') THEN
        RAISE EXCEPTION 'an endpoint is active, paused or disabled, not %', coalesce(p_state, 'NULL') USING ERRCODE = 'PJ090';
    END IF;
    -- Circuits before endpoints, as who judges an endpoint locks them.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    _endpoint := projections._lock_endpoint_v1(p_tenant, p_endpoint_id, p_version);
    IF _endpoint.state <> ALL (p_expected) THEN
        RAISE EXCEPTION 'endpoint % is %, not %', quote_literal(p_endpoint_id),
            _endpoint.state || coalesce(' (' || _endpoint.reason || ')', ''),
            array_to_string(p_expected, ' or ') || CASE _endpoint.state WHEN 'disabled' THEN ': enable it first' ELSE '' END
            USING ERRCODE = 'PJ097';
    END IF;
    IF _endpoint.state = p_state THEN
        RETURN _endpoint;
    END IF;
    UPDATE projections.webhook_endpoints AS e
    SET state = p_state, reason = p_reason, version = e.version + 1, updated_at = clock_timestamp()
    WHERE e.endpoint_id = p_endpoint_id
    RETURNING e.* INTO _endpoint;
    IF p_state = 'active' THEN
        UPDATE projections.webhook_circuits AS c
        SET failures = 0, failing_since = NULL, blocked_until = '1970-01-01T00:00:00Z', opened = 0
        WHERE c.endpoint_id = p_endpoint_id;
    END IF;
    PERFORM projections._tell_of_endpoint_v1(
        p_endpoint_id, _endpoint.tenant,
        CASE p_state WHEN 'active' THEN 'WebhookEndpointEnabled' WHEN 'paused' THEN 'WebhookEndpointPaused' ELSE 'WebhookEndpointDisabled' END,
        json_build_object('reason', p_reason)
    );
    RETURN _endpoint;
END;
$$;
