-- Removes a group with its subscriptions, cursors, retries and dead letters; returns whether there was one. What has matched for
-- it leaves with its partitions, which it does not hold any more.
CREATE OR REPLACE FUNCTION projections.remove_group_v1(p_name text)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH gone AS (DELETE FROM projections.subscription_groups AS g WHERE g.name = p_name RETURNING 1)
    SELECT EXISTS (SELECT FROM gone)
$$;
