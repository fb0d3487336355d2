-- How many matches of a partition, or of its events, each reliable group has not read.
CREATE OR REPLACE FUNCTION projections._hook_unread_subscriptions_v1(p_partition projections.partitions)
RETURNS TABLE (kind text, holder text, unread bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _from CONSTANT timestamptz := coalesce(p_partition.from_timestamp, '-infinity');
BEGIN
    RETURN QUERY
    SELECT 'group', g.name, count(DISTINCT m.match_id)
    FROM projections.subscription_groups AS g
    INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    LEFT JOIN projections.group_handlers AS h ON r.handler_id = h.handler_id
    INNER JOIN projections.matches AS m
        ON r.group_id = m.group_id AND m.match_id > r.cursor AND m.slice BETWEEN r.min_slice AND r.max_slice
        AND (h.handler_id IS NULL OR h.subscription_id = ANY (m.subscription_ids))
    WHERE g.reliable AND p_partition.table_name IN ('events', 'matches')
    AND CASE p_partition.table_name WHEN 'events' THEN m.db_timestamp ELSE m.matched_at END >= _from
    AND CASE p_partition.table_name WHEN 'events' THEN m.db_timestamp ELSE m.matched_at END < p_partition.to_timestamp
    GROUP BY g.group_id
    ORDER BY g.name;
END;
$$;
