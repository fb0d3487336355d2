-- The tables that change when a group is made, or one of its ranges goes back.
CREATE OR REPLACE FUNCTION projections._hook_locks_subscriptions_v1()
RETURNS SETOF text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    VALUES ('projections.subscription_groups'), ('projections.group_ranges')
$$;
