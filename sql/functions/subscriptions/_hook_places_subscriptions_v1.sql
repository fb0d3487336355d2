-- Where each range of each reliable group stands, as far as it may need a partition.
CREATE OR REPLACE FUNCTION projections._hook_places_subscriptions_v1(p_partition projections.partitions)
RETURNS TABLE (holder text, reason text, range text, place bigint)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        g.name, 'has gone back, or was cut into other ranges, just now',
        concat_ws(' ', r.group_id, r.min_slice, r.max_slice, r.handler_id), r.cursor
    FROM projections.group_ranges AS r
    INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id
    WHERE g.reliable AND p_partition.table_name IN ('events', 'matches')
$$;
