-- Lets the next of an order go when the one before it is finished; which were finished, the caller says, and holds the
-- circuits of their endpoints.
--
-- What stands in an order's way is what is open, or dead where the endpoint blocks: _fan_out_v1 and _release_waiting_v1 ask it in
-- the same words. It is not a function of its own: webhook_deliveries_order_idx serves only a query that its states stand in, and
-- a function that pins its search_path is never written into the query that calls it.
CREATE OR REPLACE FUNCTION projections._follow_on_v1(p_delivery_ids bigint[])
RETURNS void
LANGUAGE plpgsql
-- Kept: planning it takes ten times as long as all else, for the table has many indexes.
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    UPDATE projections.webhook_deliveries AS w
    SET state = 'pending', next_at = greatest(w.next_at, clock_timestamp())
    FROM (
        SELECT DISTINCT d.endpoint_id, d.order_key, e.on_dead
        FROM projections.webhook_deliveries AS d
        CROSS JOIN LATERAL (
            SELECT e.on_dead FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = d.endpoint_id LIMIT 1
        ) AS e
        WHERE d.delivery_id = ANY (p_delivery_ids) AND d.order_key IS NOT NULL AND d.state IN ('done', 'dead', 'dropped', 'expired', 'erased')
    ) AS k
    CROSS JOIN LATERAL (
        SELECT n.delivery_id, n.state FROM projections.webhook_deliveries AS n
        WHERE n.endpoint_id = k.endpoint_id AND n.order_key = k.order_key
        AND n.order_key IS NOT NULL AND n.state IN ('waiting', 'pending', 'leased', 'dead')
        AND (n.state <> 'dead' OR k.on_dead = 'block')
        ORDER BY n.delivery_id LIMIT 1
    ) AS n
    WHERE w.delivery_id = n.delivery_id AND n.state = 'waiting' AND w.state = 'waiting';
END;
$$;
