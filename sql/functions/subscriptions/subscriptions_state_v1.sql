-- Tells one state of all subscriptions and conditions from another: whoever remembers what follows from them compares it.
-- Nothing that matters of a subscription ever changes, so it is enough which there are; a condition may be set apart.
CREATE OR REPLACE FUNCTION projections.subscriptions_state_v1()
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws('/', s.state, c.state)
    FROM (
        SELECT concat_ws('/', count(*), sum(hashint8extended(s.subscription_id, 0))) AS state FROM projections.subscriptions AS s
    ) AS s
    CROSS JOIN (
        SELECT concat_ws('/', count(*), max(c.condition_id), sum(c.xmin::text::bigint)) AS state FROM projections.conditions AS c
    ) AS c
$$;
