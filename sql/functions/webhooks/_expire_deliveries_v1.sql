-- Ends deliveries whose expiry has passed: those that are due later, that wait in an order, and dead letters; returns how many. An
-- attempt on its way goes on. What waits for one of them in an order goes. The endpoint is not to blame.
-- Endpoints that somebody holds are passed over: the next call takes theirs.
CREATE OR REPLACE FUNCTION projections._expire_deliveries_v1(p_limit integer DEFAULT 1000)
RETURNS integer
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _ids bigint[] := ARRAY(
        SELECT d.delivery_id FROM projections.webhook_deliveries AS d
        WHERE d.expires_at IS NOT NULL AND d.state IN ('waiting', 'pending', 'dead') AND d.expires_at <= _now
        ORDER BY d.expires_at LIMIT p_limit
    );
    _free text[];
BEGIN
    IF _ids = '{}' THEN
        RETURN 0;
    END IF;
    _free := ARRAY(
        SELECT c.endpoint_id FROM projections.webhook_circuits AS c
        WHERE c.endpoint_id IN (SELECT d.endpoint_id FROM projections.webhook_deliveries AS d WHERE d.delivery_id = ANY (_ids))
        FOR NO KEY UPDATE SKIP LOCKED
    );
    WITH ended AS (
        UPDATE projections.webhook_deliveries AS d
        SET state = 'expired', manual = FALSE, finished_at = _now, data = NULL
        WHERE d.delivery_id = ANY (_ids) AND d.endpoint_id = ANY (_free) AND d.state IN ('waiting', 'pending', 'dead')
        RETURNING d.delivery_id, d.endpoint_id
    ), counted AS (
        UPDATE projections.webhook_circuits AS c SET expired = c.expired + e.number
        FROM (SELECT e.endpoint_id, count(*) AS number FROM ended AS e GROUP BY e.endpoint_id) AS e
        WHERE c.endpoint_id = e.endpoint_id
    )
    SELECT coalesce(array_agg(e.delivery_id), '{}') INTO _ids FROM ended AS e;
    PERFORM projections._follow_on_v1(_ids);
    RETURN cardinality(_ids);
END;
$$;
