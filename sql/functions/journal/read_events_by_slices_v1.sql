-- A page of a slice range's events after a position, in the order (db_timestamp, slice, source_id, seq_nr).
-- A page has p_limit events, or ends with the one with which they take p_bytes (event_bytes_v1): "more" is true on its last row
-- then. It is walked twice, first for the sizes: what is too much for the memory cannot be taken back once it is returned.
-- It looks on until the page is full, from one time to the next (page_end_v1): the conditions on db_timestamp alone say which
-- partitions are opened. Each look walks the index whatever the statistics say: they lag behind appends, and where they expect
-- few rows at the tail a plan would rather read and sort all that follow.
CREATE OR REPLACE FUNCTION projections.read_events_by_slices_v1(
    p_entity_type text,
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
RETURNS TABLE (
    source_id text,
    seq_nr bigint,
    db_timestamp timestamptz,
    slice smallint,
    event_id uuid,
    entity_type text,
    event_type text,
    version smallint,
    payload text,
    metadata text,
    tags text[],
    more boolean
)
LANGUAGE plpgsql
-- As all that read events: a statement of a volatile function plans first, and then takes its snapshot. With that of its caller
-- it would not find what has left the default partition meanwhile (create_partition_v1).
VOLATILE
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _from timestamptz := p_after_timestamp;
    _until timestamptz;
    _intervals integer := 1;
    _left bigint := p_limit;
    _size bigint;
    _rows bigint;
BEGIN
    LOOP
        _until := projections.page_end_v1(_from, p_until, _intervals);
        _rows := 0;
        FOR _size IN
            SELECT projections.event_bytes_v1(e.payload, e.metadata)
            FROM projections.events AS e
            WHERE e.entity_type = p_entity_type
            AND e.db_timestamp >= _from
            AND e.db_timestamp <= _until
            AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr)
                > (p_after_timestamp, p_after_slice::smallint, p_after_source_id, p_after_seq_nr)
            AND e.slice BETWEEN p_min_slice AND p_max_slice
            ORDER BY e.entity_type, e.db_timestamp, e.slice, e.source_id, e.seq_nr
            LIMIT _left
        LOOP
            p_bytes := p_bytes - _size;
            _rows := _rows + 1;
            EXIT WHEN p_bytes <= 0;
        END LOOP;
        IF _rows > 0 THEN
            RETURN QUERY SELECT
                e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
                e.payload::text, e.metadata::text, e.tags, coalesce(p_bytes <= 0, FALSE)
            FROM projections.events AS e
            WHERE e.entity_type = p_entity_type
            AND e.db_timestamp >= _from
            AND e.db_timestamp <= _until
            AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr)
                > (p_after_timestamp, p_after_slice::smallint, p_after_source_id, p_after_seq_nr)
            AND e.slice BETWEEN p_min_slice AND p_max_slice
            ORDER BY e.entity_type, e.db_timestamp, e.slice, e.source_id, e.seq_nr
            -- One that has become visible since must not take the place of one that was counted: that would be passed over.
            LIMIT CASE WHEN p_bytes <= 0 THEN _rows ELSE _left END;
            GET DIAGNOSTICS _rows = ROW_COUNT;
        END IF;
        _left := _left - _rows;
        EXIT WHEN _left <= 0 OR p_bytes <= 0 OR _until >= p_until;
        _from := _until + interval '1 microsecond';
        _intervals := 2 * _intervals;
    END LOOP;
END;
$$;
