-- How many rows of a partition each projection has not read, and each unfinished rebuild needs.
-- A rebuild compares with the journal at its end what it has folded: it needs all up to its fence.
CREATE OR REPLACE FUNCTION projections._hook_unread_projections_v1(p_partition projections.partitions)
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
    _all CONSTANT text[] := ARRAY(SELECT projections._entity_types_v1());
BEGIN
    IF p_partition.table_name = 'events' THEN
        RETURN QUERY
        SELECT 'projection', p.name, count(*)
        FROM projections.projections AS p
        CROSS JOIN LATERAL unnest(coalesce(p.entity_types, _all)) AS t (entity_type)
        INNER JOIN projections.events AS e ON t.entity_type = e.entity_type
        WHERE e.db_timestamp >= _from AND e.db_timestamp < p_partition.to_timestamp
        -- Of a source without an offset, what is older than evicted_before counts as handled.
        AND coalesce(
            e.seq_nr > (
                SELECT o.seq_nr FROM projections.source_offsets AS o
                WHERE o.projection_id = p.projection_id AND o.source_id = e.source_id
            ),
            e.seq_nr >= (
                SELECT k.seq_nr FROM projections.parked_sources AS k
                WHERE k.projection_id = p.projection_id AND k.source_id = e.source_id
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
        AND e.db_timestamp >= _from AND e.db_timestamp < p_partition.to_timestamp AND e.db_timestamp <= b.fence
        GROUP BY p.projection_id
        ORDER BY p.name;
    END IF;
END;
$$;
