-- Gives an endpoint a new secret. The ones it has sign beside it for p_grace, then no more; at most ten live at a time.
-- A tenant of NULL is any. Raises PJ091.
CREATE OR REPLACE FUNCTION projections.rotate_secret_v1(p_tenant text, p_endpoint_id text, p_secret text, p_grace interval)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM projections.webhook_endpoints AS e
    WHERE e.endpoint_id = p_endpoint_id AND (p_tenant IS NULL OR e.tenant = p_tenant) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no endpoint %', quote_literal(p_endpoint_id) USING ERRCODE = 'PJ091';
    END IF;
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
END;
$$;
