-- Chooses the deliveries in one of p_states that fit, at most p_limit after p_after, locks them, and returns their numbers in
-- order; NULL when there is none. A tenant, endpoint or time of NULL is any. What has changed before it was locked is still
-- among them: who changes them looks at their states again.
CREATE OR REPLACE FUNCTION projections.lock_deliveries_after_v1(
    p_tenant text,
    p_endpoint_id text,
    p_topics text[],
    p_states text[],
    p_since timestamptz,
    p_until timestamptz,
    p_after bigint,
    p_limit integer
)
RETURNS bigint[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _chosen bigint[];
BEGIN
    SELECT array_agg(d.delivery_id ORDER BY d.delivery_id) INTO _chosen FROM (
        SELECT d.delivery_id FROM projections.webhook_deliveries AS d
        WHERE d.delivery_id > p_after AND d.state = ANY (p_states)
        AND (p_tenant IS NULL OR d.tenant = p_tenant)
        AND (p_endpoint_id IS NULL OR d.endpoint_id = p_endpoint_id)
        AND (p_topics IS NULL OR d.topic = ANY (p_topics))
        AND (p_since IS NULL OR d.event_time >= p_since) AND (p_until IS NULL OR d.event_time < p_until)
        ORDER BY d.delivery_id LIMIT p_limit
    ) AS d;
    PERFORM projections.lock_deliveries_v1(_chosen);
    RETURN _chosen;
END;
$$;
