-- Locks the circuits of deliveries' endpoints, then the deliveries, each in the order in which all do who lock several, so that
-- nobody waits for another in a ring.
CREATE OR REPLACE FUNCTION projections._lock_deliveries_v1(p_delivery_ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    PERFORM FROM projections.webhook_circuits AS c
    WHERE c.endpoint_id = ANY (ARRAY(
        SELECT d.endpoint_id FROM projections.webhook_deliveries AS d WHERE d.delivery_id = ANY (p_delivery_ids)
    ))
    ORDER BY c.endpoint_id FOR NO KEY UPDATE;
    PERFORM FROM projections.webhook_deliveries AS d
    WHERE d.delivery_id = ANY (p_delivery_ids) ORDER BY d.delivery_id FOR NO KEY UPDATE;
END;
$$;
