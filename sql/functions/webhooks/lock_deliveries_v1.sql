-- Locks deliveries that are to be finished, the next of each order that they are in, and the circuits of their endpoints, so
-- that nobody who locks several of these waits for another in a ring. The order for all is: circuits by endpoint; deliveries in
-- no order by number; then orders by endpoint and key, each with all that is wanted of it before the next.
CREATE OR REPLACE FUNCTION projections.lock_deliveries_v1(p_delivery_ids bigint[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _order record;
BEGIN
    PERFORM FROM projections.webhook_circuits AS c
    WHERE c.endpoint_id = ANY (ARRAY(
        SELECT d.endpoint_id FROM projections.webhook_deliveries AS d WHERE d.delivery_id = ANY (p_delivery_ids)
    ))
    ORDER BY c.endpoint_id FOR NO KEY UPDATE;
    PERFORM FROM projections.webhook_deliveries AS d
    WHERE d.delivery_id = ANY (p_delivery_ids) AND d.order_key IS NULL ORDER BY d.delivery_id FOR NO KEY UPDATE;
    FOR _order IN
        SELECT d.endpoint_id, d.order_key, array_agg(d.delivery_id) AS ids FROM projections.webhook_deliveries AS d
        WHERE d.delivery_id = ANY (p_delivery_ids) AND d.order_key IS NOT NULL
        GROUP BY d.endpoint_id, d.order_key ORDER BY d.endpoint_id, d.order_key
    LOOP
        PERFORM FROM projections.webhook_deliveries AS d
        WHERE d.delivery_id = ANY (_order.ids) ORDER BY d.delivery_id FOR NO KEY UPDATE;
        -- Looks anew: behind what was waited for, others may have been added.
        PERFORM FROM projections.webhook_deliveries AS d
        WHERE d.endpoint_id = _order.endpoint_id AND d.order_key = _order.order_key
        AND d.order_key IS NOT NULL AND d.state = 'waiting'
        ORDER BY d.delivery_id LIMIT 1 FOR NO KEY UPDATE;
    END LOOP;
END;
$$;
