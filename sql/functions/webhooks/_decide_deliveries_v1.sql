-- Decides about many deliveries: 'retry' has those in one of p_states that fit tried again, in their order; what cannot be, because
-- it has expired, its endpoint is disabled or its payload gone, is passed over. 'drop' is for dead letters alone: they are not tried
-- again, and what waits for them in an order goes on. Looks at p_limit deliveries after p_after at most, so that each call is
-- short: go on with the last one looked at until that is NULL. A tenant, endpoint or time of NULL is any.
--
-- Raises PJ096 for another decision, or states that it is not for.
CREATE OR REPLACE FUNCTION projections._decide_deliveries_v1(
    p_decision text, p_tenant text, p_endpoint_id text, p_states text[], p_topics text[], p_since timestamptz,
    p_until timestamptz, p_after bigint DEFAULT 0, p_limit integer DEFAULT 1000, OUT changed integer, OUT last_delivery_id bigint
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
    IF (p_states <@ CASE p_decision WHEN 'retry' THEN '{dead,done,dropped}' WHEN 'drop' THEN '{dead}' END::text[]) IS NOT TRUE THEN
        RAISE EXCEPTION 'many are % of those %, not %', CASE p_decision WHEN 'drop' THEN 'dropped' ELSE 'tried again' END,
            CASE p_decision WHEN 'drop' THEN 'dead' ELSE 'dead, done or dropped' END, coalesce(p_states::text, 'NULL')
        USING ERRCODE = 'PJ096';
    END IF;
    SELECT array_agg(d.delivery_id ORDER BY d.delivery_id) INTO _chosen FROM (
        SELECT d.delivery_id FROM projections.webhook_deliveries AS d
        WHERE d.delivery_id > p_after AND d.state = ANY (p_states)
        AND (p_tenant IS NULL OR d.tenant = p_tenant)
        AND (p_endpoint_id IS NULL OR d.endpoint_id = p_endpoint_id)
        AND (p_topics IS NULL OR d.topic = ANY (p_topics))
        AND (p_since IS NULL OR d.event_time >= p_since) AND (p_until IS NULL OR d.event_time < p_until)
        ORDER BY d.delivery_id LIMIT p_limit
    ) AS d;
    last_delivery_id := _chosen[cardinality(_chosen)];
    PERFORM projections._lock_deliveries_v1(_chosen);
    -- What has changed before it was locked is still among them.
    IF p_decision = 'drop' THEN
        UPDATE projections.webhook_deliveries AS d
        SET state = 'dropped', manual = FALSE, finished_at = clock_timestamp(), data = NULL
        WHERE d.delivery_id = ANY (_chosen) AND d.state = ANY (p_states);
        GET DIAGNOSTICS changed = ROW_COUNT;
        PERFORM projections._follow_on_v1(_chosen);
    ELSE
        UPDATE projections.webhook_deliveries AS d
        SET state = 'pending', manual = TRUE, next_at = clock_timestamp(), finished_at = NULL
        FROM projections.webhook_endpoints AS e
        WHERE d.delivery_id = ANY (_chosen) AND d.state = ANY (p_states)
        AND e.endpoint_id = d.endpoint_id AND e.state <> 'disabled'
        AND (d.expires_at IS NULL OR d.expires_at > clock_timestamp())
        AND (d.data IS NOT NULL OR (
            SELECT v.event_id FROM projections.webhook_events AS v
            WHERE v.event_time = d.event_time AND v.event_id = d.event_id AND v.data IS NOT NULL LIMIT 1
        ) IS NOT NULL);
        GET DIAGNOSTICS changed = ROW_COUNT;
    END IF;
END;
$$;
