-- Tells one state of all subscriptions and conditions from another: whoever remembers what follows from them compares it.
-- Nothing that matters of a subscription ever changes, so it is enough which there are; a condition may be set apart. Numbers
-- are given out again after a fail-over or a restore: with its time, each is another.
CREATE OR REPLACE FUNCTION projections._subscriptions_state_v1()
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws('/', s.state, c.state)
    FROM (
        SELECT concat_ws('/', count(*), sum(hashfloat8extended(date_part('epoch', s.created_at), s.subscription_id))) AS state
        FROM projections.subscriptions AS s
    ) AS s
    CROSS JOIN (
        SELECT concat_ws(
            '/', count(*), sum(hashfloat8extended(date_part('epoch', c.created_at), c.condition_id::bigint)),
            sum(hashfloat8extended(date_part('epoch', c.quarantined_at), c.condition_id::bigint))
        ) AS state
        FROM projections.conditions AS c
    ) AS c
$$;
