-- Which projections do nothing with events that are imported into the past: matching, for what was before a subscription is not for it.
CREATE OR REPLACE FUNCTION projections._hook_live_only_subscriptions_v1()
RETURNS SETOF text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    VALUES ('matching')
$$;
