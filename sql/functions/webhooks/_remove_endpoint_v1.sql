-- Removes an endpoint with its deliveries and secrets; what was tried stays in the log. A tenant of NULL is any.
-- Raises PJ091, and PJ099 when it has another version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._remove_endpoint_v1(p_tenant text, p_endpoint_id text, p_version integer DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- With its circuit nobody finishes a delivery of it, with itself nobody makes one.
    PERFORM FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR UPDATE;
    PERFORM FROM projections.webhook_endpoints AS e
    WHERE e.endpoint_id = p_endpoint_id AND (p_tenant IS NULL OR e.tenant = p_tenant) FOR UPDATE;
    PERFORM projections._lock_endpoint_v1(p_tenant, p_endpoint_id, p_version);
    PERFORM FROM projections.webhook_deliveries AS d
    WHERE d.endpoint_id = p_endpoint_id ORDER BY d.delivery_id FOR UPDATE;
    DELETE FROM projections.webhook_deliveries AS d WHERE d.endpoint_id = p_endpoint_id;
    DELETE FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id;
    DELETE FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = p_endpoint_id;
END;
$$;
