-- Removes the subscriptions that were not in use for as long as they said; returns how many.
CREATE OR REPLACE FUNCTION projections.expire_subscriptions_v1()
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (
        DELETE FROM projections.subscriptions AS s WHERE s.active_at + s.expires_after < clock_timestamp() RETURNING 1
    )
    SELECT count(*) FROM gone
$$;
