-- Removes subscriptions that were not in use for as long as they said, 1,000 at a time; returns how many, 0 when all are gone.
CREATE OR REPLACE FUNCTION projections._expire_subscriptions_v1()
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM projections.subscriptions AS s
        USING (
            -- One that is just being said to be in use stays.
            SELECT f.subscription_id FROM projections.subscriptions AS f
            WHERE f.active_at + f.expires_after < clock_timestamp() LIMIT 1000 FOR UPDATE SKIP LOCKED -- noqa: AM09
        ) AS f
        WHERE s.subscription_id = f.subscription_id RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
