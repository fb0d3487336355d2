-- Gives up a handler that no consumer of a group has any more: what has matched for it is kept no longer, and its subscription
-- goes where it is no other handler's. Nothing of a handler that somebody has is touched. Returns how many subscriptions went.
CREATE OR REPLACE FUNCTION projections._give_up_handler_v1(p_group text, p_name text)
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH given_up AS (
        DELETE FROM projections.group_handlers AS h
        USING projections.subscription_groups AS g
        WHERE g.name = p_group AND h.group_id = g.group_id AND h.name = p_name
        AND EXISTS (SELECT FROM projections.group_ranges AS r WHERE r.group_id = g.group_id AND r.handler_id = h.handler_id)
        AND NOT EXISTS (
            SELECT FROM projections.group_ranges AS r
            INNER JOIN projections.workers AS o ON r.group_id = o.group_id AND r.owner = o.owner
            WHERE r.group_id = g.group_id AND r.handler_id = h.handler_id AND o.lease_until > clock_timestamp()
        )
        RETURNING h.handler_id, h.subscription_id
    ), gone AS (
        DELETE FROM projections.subscriptions AS s
        USING given_up AS u
        WHERE s.subscription_id = u.subscription_id AND NOT EXISTS (
            SELECT FROM projections.group_handlers AS o
            WHERE o.subscription_id = u.subscription_id AND o.handler_id <> u.handler_id
        )
    )
    SELECT count(*) FROM given_up
$$;
