-- Has many deliveries tried again, in their order: those in one of p_states that fit. What can not be, because its endpoint is
-- disabled or its payload gone, is passed over. Looks at p_limit deliveries after p_after at most, so that each call is short:
-- go on with the last one looked at until that is NULL. A tenant, endpoint or time of NULL is any.
CREATE OR REPLACE FUNCTION projections.retry_deliveries_v1(
    p_tenant text,
    p_endpoint_id text,
    p_topics text[],
    p_states text[],
    p_since timestamptz,
    p_until timestamptz,
    p_after bigint DEFAULT 0,
    p_limit integer DEFAULT 1000,
    OUT changed integer,
    OUT last_delivery_id bigint
)
RETURNS record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _chosen bigint[];
BEGIN
    IF p_states IS NULL OR NOT p_states <@ ARRAY['dead', 'done', 'dropped'] THEN
        RAISE EXCEPTION 'many are tried again of those dead, done or dropped, not %', coalesce(p_states::text, 'NULL')
        USING ERRCODE = 'PJ096';
    END IF;
    _chosen := projections.lock_deliveries_after_v1(
        p_tenant, p_endpoint_id, p_topics, p_states, p_since, p_until, p_after, p_limit
    );
    last_delivery_id := _chosen[cardinality(_chosen)];
    UPDATE projections.webhook_deliveries AS d
    SET state = 'pending', manual = TRUE, next_at = clock_timestamp(), finished_at = NULL
    FROM projections.webhook_endpoints AS e
    WHERE d.delivery_id = ANY (_chosen) AND d.state = ANY (p_states)
    AND e.endpoint_id = d.endpoint_id AND e.state <> 'disabled'
    AND (d.data IS NOT NULL OR (
        SELECT v.event_id FROM projections.webhook_events AS v
        WHERE v.event_time = d.event_time AND v.event_id = d.event_id LIMIT 1
    ) IS NOT NULL);
    GET DIAGNOSTICS changed = ROW_COUNT;
END;
$$;
