-- Removes a subscription; returns whether there was one. What it has matched stays to be read.
CREATE OR REPLACE FUNCTION projections.unsubscribe_v1(p_subscription_id bigint)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (DELETE FROM projections.subscriptions AS s WHERE s.subscription_id = p_subscription_id RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;
