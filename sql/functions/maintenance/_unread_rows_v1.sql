-- How many rows of a partition each projection and group has not read, and each unfinished rebuild needs: for whom they are
-- lost when it is dropped by force. A rebuild compares with the journal at its end what it has folded: it needs all up to its fence.
CREATE OR REPLACE FUNCTION projections._unread_rows_v1(p_name text)
RETURNS TABLE (kind text, holder text, unread bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _partition projections.partitions;
    _from timestamptz;
    _all CONSTANT text[] := ARRAY(SELECT projections._entity_types_v1());
BEGIN
    SELECT p.* INTO _partition FROM projections.partitions AS p WHERE p.name = p_name AND p.to_timestamp IS NOT NULL;
    _from := coalesce(_partition.from_timestamp, '-infinity');
    IF _partition.table_name = 'events' THEN
        RETURN QUERY
        SELECT 'projection', p.name, count(*)
        FROM projections.projections AS p
        CROSS JOIN LATERAL unnest(coalesce(p.entity_types, _all)) AS t (entity_type)
        INNER JOIN projections.events AS e ON t.entity_type = e.entity_type
        WHERE e.db_timestamp >= _from AND e.db_timestamp < _partition.to_timestamp
        -- Of a source without an offset, what is older than evicted_before counts as handled.
        AND coalesce(
            e.seq_nr > (
                SELECT o.seq_nr FROM projections.source_offsets AS o
                WHERE o.projection_id = p.projection_id AND o.source_id = e.source_id
            ),
            e.db_timestamp >= p.evicted_before
        )
        GROUP BY p.projection_id
        ORDER BY p.name;
        RETURN QUERY
        SELECT 'rebuild', p.name, count(*)
        FROM projections.rebuilds AS b
        INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
        CROSS JOIN LATERAL unnest(coalesce(b.entity_types, _all)) AS t (entity_type)
        INNER JOIN projections.events AS e ON t.entity_type = e.entity_type AND e.slice BETWEEN b.min_slice AND b.max_slice
        WHERE b.state IN ('folding', 'verified')
        AND e.db_timestamp >= _from AND e.db_timestamp < _partition.to_timestamp AND e.db_timestamp <= b.fence
        GROUP BY p.projection_id
        ORDER BY p.name;
    END IF;
    RETURN QUERY
    SELECT 'group', g.name, count(DISTINCT m.match_id)
    FROM projections.subscription_groups AS g
    INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    LEFT JOIN projections.group_handlers AS h ON r.handler_id = h.handler_id
    INNER JOIN projections.matches AS m
        ON r.group_id = m.group_id AND m.match_id > r.cursor AND m.slice BETWEEN r.min_slice AND r.max_slice
        AND (h.handler_id IS NULL OR h.subscription_id = ANY (m.subscription_ids))
    WHERE g.reliable AND _partition.table_name IN ('events', 'matches')
    AND CASE _partition.table_name WHEN 'events' THEN m.db_timestamp ELSE m.matched_at END >= _from
    AND CASE _partition.table_name WHEN 'events' THEN m.db_timestamp ELSE m.matched_at END < _partition.to_timestamp
    GROUP BY g.group_id
    ORDER BY g.name;
END;
$$;
