-- Tells one state of all subscriptions and conditions from another: whoever remembers what follows from them compares it. A
-- new row has a higher number, one that is gone is missed by the count, and a changed one has a newer transaction.
CREATE OR REPLACE FUNCTION projections.subscriptions_state_v1()
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws('/', s.state, c.state)
    FROM (
        SELECT concat_ws('/', count(*), max(s.subscription_id), sum(s.xmin::text::bigint)) AS state FROM projections.subscriptions AS s
    ) AS s
    CROSS JOIN (
        SELECT concat_ws('/', count(*), max(c.condition_id), sum(c.xmin::text::bigint)) AS state FROM projections.conditions AS c
    ) AS c
$$;
