-- Locks an endpoint for a change, and gives its row. A tenant of NULL is any, so is a version of NULL.
--
-- Raises PJ091 when the tenant has no such endpoint, and PJ099 when it has another version.
CREATE OR REPLACE FUNCTION projections._lock_endpoint_v1(p_tenant text, p_endpoint_id text, p_version integer)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _found projections.webhook_endpoints;
BEGIN
    SELECT e.* INTO _found FROM projections.webhook_endpoints AS e
    WHERE e.endpoint_id = p_endpoint_id AND (p_tenant IS NULL OR e.tenant = p_tenant) FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no endpoint %', quote_literal(p_endpoint_id) USING ERRCODE = 'PJ091';
    END IF;
    IF _found.version <> p_version THEN
        RAISE EXCEPTION 'endpoint % has version %, not %: read it again, and change what it is now',
            quote_literal(p_endpoint_id), _found.version, p_version USING ERRCODE = 'PJ099';
    END IF;
    RETURN _found;
END;
$$;
