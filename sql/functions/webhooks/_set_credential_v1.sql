-- Gives an endpoint a client certificate, or a client of OAuth, in place of the one that it has; with a secret of NULL, takes that away.
-- It holds from the next claim on. A tenant of NULL is any. Gives the endpoint's row as it is written.
-- Raises PJ091, and PJ099 when it has another version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._set_credential_v1(
    p_tenant text, p_endpoint_id text, p_kind text, p_facts json, p_secret text, p_version integer DEFAULT NULL
)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _endpoint projections.webhook_endpoints;
BEGIN
    PERFORM projections._lock_endpoint_v1(p_tenant, p_endpoint_id, p_version);
    DELETE FROM projections.webhook_credentials AS c WHERE c.endpoint_id = p_endpoint_id AND c.kind = p_kind;
    INSERT INTO projections.webhook_credentials (endpoint_id, kind, facts, secret)
    SELECT p_endpoint_id, p_kind, p_facts, p_secret WHERE p_secret IS NOT NULL;
    UPDATE projections.webhook_endpoints AS e SET version = e.version + 1, updated_at = clock_timestamp()
    WHERE e.endpoint_id = p_endpoint_id
    RETURNING e.* INTO _endpoint;
    RETURN _endpoint;
END;
$$;
