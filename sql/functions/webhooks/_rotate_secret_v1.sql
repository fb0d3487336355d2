-- Gives an endpoint a new secret. The ones it has sign alongside it for p_grace, then no more; at most ten live at a time.
-- A tenant of NULL is any. Gives the endpoint's row as it is written: a new secret is a change of it.
-- Raises PJ091, and PJ099 when it has another version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._rotate_secret_v1(
    p_tenant text, p_endpoint_id text, p_secret text, p_grace interval, p_version integer DEFAULT NULL
)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _endpoint projections.webhook_endpoints;
BEGIN
    PERFORM projections._lock_endpoint_v1(p_tenant, p_endpoint_id, p_version);
    UPDATE projections.webhook_secrets AS s SET expires_at = clock_timestamp() + p_grace
    WHERE s.endpoint_id = p_endpoint_id AND (s.expires_at IS NULL OR s.expires_at > clock_timestamp() + p_grace);
    INSERT INTO projections.webhook_secrets (endpoint_id, secret) VALUES (p_endpoint_id, p_secret);
    DELETE FROM projections.webhook_secrets AS s
    WHERE s.endpoint_id = p_endpoint_id AND (
        s.expires_at <= clock_timestamp()
        OR s.secret_id <= (
            SELECT o.secret_id FROM projections.webhook_secrets AS o
            WHERE o.endpoint_id = p_endpoint_id ORDER BY o.secret_id DESC OFFSET 10 LIMIT 1
        )
    );
    UPDATE projections.webhook_endpoints AS e SET version = e.version + 1, updated_at = clock_timestamp()
    WHERE e.endpoint_id = p_endpoint_id
    RETURNING e.* INTO _endpoint;
    RETURN _endpoint;
END;
$$;
