-- Drops all dead letters that fit: they are not tried again, and what waits for them in an order goes on. Looks at p_limit of
-- them after p_after at most, so that each call is short: go on with the last one looked at until that is NULL. A tenant,
-- endpoint or time of NULL is any.
CREATE OR REPLACE FUNCTION projections.drop_deliveries_v1(
    p_tenant text,
    p_endpoint_id text,
    p_topics text[],
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
AS $$
DECLARE
    _chosen bigint[] := projections.lock_deliveries_after_v1(
        p_tenant, p_endpoint_id, p_topics, '{dead}', p_since, p_until, p_after, p_limit
    );
BEGIN
    last_delivery_id := _chosen[cardinality(_chosen)];
    UPDATE projections.webhook_deliveries AS d
    SET state = 'dropped', manual = FALSE, finished_at = clock_timestamp(), data = NULL
    WHERE d.delivery_id = ANY (_chosen) AND d.state = 'dead';
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM projections.follow_on_v1(_chosen);
END;
$$;
