-- Lets deliveries go that wait in an order behind nothing, as _follow_on_v1 does for who finishes one: an endpoint that no longer
-- holds back behind dead letters has some that wait for these, and so has one whose deliveries somebody has changed by hand.
-- Looks at p_limit orders after one at most; go on with the last one looked at until it is NULL. It waits for nobody: what
-- others have locked is for the next time.
CREATE OR REPLACE FUNCTION projections._release_waiting_v1(
    p_after_endpoint_id text DEFAULT '',
    p_after_key text DEFAULT '',
    p_limit integer DEFAULT 1000,
    OUT released integer,
    OUT last_endpoint_id text,
    OUT last_key text
)
RETURNS record
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _order record;
    _on_dead text;
    _first record;
    _ids bigint[] := '{}';
BEGIN
    last_endpoint_id := p_after_endpoint_id;
    last_key := p_after_key;
    FOR _looks IN 1..p_limit LOOP
        -- Walks from order to order: however many deliveries are in one, it is one step in the index.
        SELECT d.endpoint_id, d.order_key INTO _order FROM projections.webhook_deliveries AS d
        WHERE d.order_key IS NOT NULL AND d.state IN ('waiting', 'pending', 'leased', 'dead')
        AND (d.endpoint_id, d.order_key) > (last_endpoint_id, last_key)
        ORDER BY d.endpoint_id, d.order_key LIMIT 1;
        IF NOT FOUND THEN
            last_endpoint_id := NULL;
            last_key := NULL;
            EXIT;
        END IF;
        last_endpoint_id := _order.endpoint_id;
        last_key := _order.order_key;
        SELECT e.on_dead INTO _on_dead FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = last_endpoint_id;
        SELECT d.delivery_id, d.state INTO _first FROM projections.webhook_deliveries AS d
        WHERE d.endpoint_id = last_endpoint_id AND d.order_key = last_key
        AND d.order_key IS NOT NULL AND d.state IN ('waiting', 'pending', 'leased', 'dead')
        AND (d.state <> 'dead' OR _on_dead = 'block')
        ORDER BY d.delivery_id LIMIT 1;
        IF _first.state = 'waiting' THEN
            _ids := _ids || _first.delivery_id;
        END IF;
    END LOOP;
    UPDATE projections.webhook_deliveries AS d
    SET state = 'pending', next_at = greatest(d.next_at, clock_timestamp())
    WHERE d.delivery_id IN (
        SELECT w.delivery_id FROM projections.webhook_deliveries AS w
        WHERE w.delivery_id = ANY (_ids) AND w.state = 'waiting' FOR NO KEY UPDATE SKIP LOCKED
    );
    GET DIAGNOSTICS released = ROW_COUNT;
END;
$$;
