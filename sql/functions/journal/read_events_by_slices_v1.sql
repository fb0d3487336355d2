-- A page of a slice range's events after a position, in the order (db_timestamp, slice, source_id, seq_nr): of some entity types, or
-- of all where p_entity_types is NULL.
-- A page has p_limit events, or ends with the one with which they take p_bytes (_event_bytes_v1): "more" is true on its last row
-- then. Sizes are summed up before anything is unpacked.
-- It looks on until it finds events, from one time to the next (_page_end_v1), and ends with those times: "more" is true then,
-- too. The conditions on db_timestamp alone say which partitions are opened; where there are few, it takes one look at all.
-- A look walks the index whatever the statistics say: they lag behind appends, and where they expect few rows at the tail a
-- plan would rather read and sort all that follow. Several types are merged (_merged_types_v1) by a query that is planned each time, so
-- it never opens all partitions.
CREATE OR REPLACE FUNCTION projections.read_events_by_slices_v1(
    p_entity_types text[],
    p_min_slice integer,
    p_max_slice integer,
    p_after_timestamp timestamptz,
    p_after_slice integer,
    p_after_source_id text,
    p_after_seq_nr bigint,
    p_until timestamptz,
    p_limit integer,
    p_bytes bigint DEFAULT 8388608
)
RETURNS SETOF projections.paged_events
LANGUAGE plpgsql
-- As all that read events: a statement of a volatile function plans first, and then takes its snapshot. With that of its caller
-- it would not find what has left the default partition meanwhile (_create_partition_v1).
VOLATILE
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _types CONSTANT text[] := coalesce(p_entity_types, ARRAY(SELECT projections._entity_types_v1()));
    _one CONSTANT text := CASE WHEN cardinality(_types) = 1 THEN _types[1] END;
    _few CONSTANT boolean := _one IS NOT NULL AND projections._few_partitions_v1();
    _from timestamptz := p_after_timestamp;
    _until timestamptz;
    _intervals integer := 1;
BEGIN
    IF _types = '{}' THEN
        RETURN;
    ELSIF _few THEN
        PERFORM set_config('plan_cache_mode', 'force_generic_plan', TRUE);
    ELSIF _one IS NULL THEN
        p_until := projections._merged_end_v1(_types, p_after_timestamp, p_until);
    END IF;
    LOOP
        _until := CASE WHEN _few THEN p_until ELSE projections._page_end_v1(_from, p_until, _intervals) END;
        IF _one IS NOT NULL THEN
            RETURN QUERY SELECT
                e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
                e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= p_bytes, FALSE) OR _until < p_until
            FROM (
                SELECT
                    e.*,
                    sum(e.bytes) OVER (ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
                FROM (
                    SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
                    FROM projections.events AS e
                    WHERE e.entity_type = _one
                    AND e.db_timestamp >= _from
                    AND e.db_timestamp <= _until
                    AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr)
                        > (p_after_timestamp, p_after_slice::smallint, p_after_source_id, p_after_seq_nr)
                    AND e.slice BETWEEN p_min_slice AND p_max_slice
                    ORDER BY e.entity_type, e.db_timestamp, e.slice, e.source_id, e.seq_nr
                    LIMIT p_limit
                ) AS e
            ) AS e
            WHERE (e.total - e.bytes < p_bytes) IS NOT FALSE;
        ELSE
            RETURN QUERY EXECUTE
                'SELECT e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version, '
                'e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= $10, FALSE) OR $11 '
                'FROM (SELECT e.*, sum(e.bytes) OVER ('
                'ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total '
                'FROM (' || projections._merged_types_v1(
                    _types, 'e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes'
                ) || ') AS e) AS e WHERE (e.total - e.bytes < $10) IS NOT FALSE'
            USING
                _from, _until, p_after_timestamp, p_after_slice, p_after_source_id, p_after_seq_nr, p_min_slice, p_max_slice, p_limit,
                p_bytes, _until < p_until;
        END IF;
        EXIT WHEN FOUND OR _until >= p_until;
        _from := _until + interval '1 microsecond';
        _intervals := 2 * _intervals;
    END LOOP;
END;
$$;
