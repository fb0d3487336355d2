-- Says that subscriptions are in use; returns those that exist. Call it more often than they expire. What somebody has locked is passed
-- over until the next call: nobody who reads waits for a transaction that subscribes, however long it takes.
CREATE OR REPLACE FUNCTION projections.keep_subscriptions_v1(p_subscription_ids bigint[])
RETURNS bigint[]
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    WITH kept AS (
        UPDATE projections.subscriptions AS s SET active_at = clock_timestamp()
        FROM (
            SELECT f.subscription_id FROM projections.subscriptions AS f
            WHERE f.subscription_id = ANY (p_subscription_ids) ORDER BY f.subscription_id FOR NO KEY UPDATE SKIP LOCKED
        ) AS f
        WHERE s.subscription_id = f.subscription_id
    )
    SELECT coalesce(array_agg(f.subscription_id ORDER BY f.subscription_id), '{}')
    FROM projections.subscriptions AS f WHERE f.subscription_id = ANY (p_subscription_ids)
$$;
