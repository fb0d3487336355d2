-- Raises PJ091 where a schedule is for an endpoint that its tenant does not have; NULL is for all of them.
CREATE OR REPLACE FUNCTION projections._check_schedule_endpoint_v1(p_tenant text, p_endpoint_id text)
RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_endpoint_id IS NOT NULL AND NOT EXISTS (
        SELECT FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = p_endpoint_id AND e.tenant = p_tenant
    ) THEN
        RAISE EXCEPTION 'there is no endpoint %', quote_literal(p_endpoint_id) USING ERRCODE = 'PJ091';
    END IF;
END;
$$;
