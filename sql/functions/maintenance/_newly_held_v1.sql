-- Whether somebody has come to need a partition since it was asked who does, of which only those can that have gone back: a
-- projection, or a range of a group that stands before where it was (p_before), or is new. For _drop_partition_v1, which keeps
-- them from changing meanwhile, and others from writing to the partition. Returns who, or NULL.
CREATE OR REPLACE FUNCTION projections._newly_held_v1(
    p_partition projections.partitions, p_before projections.group_ranges[]
)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(concat_ws(' ', h.holder, h.reason), ', ' ORDER BY h.holder)
    FROM (
        SELECT p.holder, p.reason FROM projections._projection_holders_v1() AS p
        WHERE p_partition.table_name = 'events' AND p.since < p_partition.to_timestamp
        AND (p_partition.from_timestamp IS NULL OR p.until >= p_partition.from_timestamp)
        UNION
        SELECT g.name, 'has gone back, or was cut into other ranges, just now'
        FROM projections.group_ranges AS r
        INNER JOIN projections.subscription_groups AS g ON r.group_id = g.group_id
        WHERE g.reliable AND p_partition.table_name IN ('events', 'matches')
        AND NOT EXISTS (
            SELECT FROM unnest(p_before) AS b
            WHERE b.group_id = r.group_id AND b.min_slice = r.min_slice AND b.max_slice = r.max_slice
            AND b.handler_id IS NOT DISTINCT FROM r.handler_id AND b.cursor <= r.cursor
        )
    ) AS h
$$;
