-- The same page as read_events_by_slices_v1, keys only, from the index alone: what backtracking reads again. With p_types it has the
-- types of the events, too, which matching needs, and which are not in the index.
CREATE OR REPLACE FUNCTION projections._read_keys_by_slices_v1(
    p_entity_types text[],
    p_min_slice integer,
    p_max_slice integer,
    p_after_timestamp timestamptz,
    p_after_slice integer,
    p_after_source_id text,
    p_after_seq_nr bigint,
    p_until timestamptz,
    p_limit integer,
    p_types boolean DEFAULT FALSE
)
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz, slice smallint, event_type text, entity_type text)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _types CONSTANT text[] := coalesce(p_entity_types, ARRAY(SELECT projections._entity_types_v1()));
    _one CONSTANT text := CASE WHEN cardinality(_types) = 1 THEN _types[1] END;
    _few CONSTANT boolean := _one IS NOT NULL AND projections._few_partitions_v1();
    _from timestamptz := p_after_timestamp;
    _until timestamptz;
    _intervals integer := 1;
    _left bigint := p_limit;
    _found bigint;
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
        IF _one IS NULL THEN
            RETURN QUERY EXECUTE projections._merged_types_v1(
                _types, 'e.source_id, e.seq_nr, e.db_timestamp, e.slice, ' || CASE WHEN p_types THEN 'e.event_type' ELSE 'NULL::text' END
                || ', e.entity_type'
            ) USING
                _from, _until, p_after_timestamp, p_after_slice, p_after_source_id, p_after_seq_nr, p_min_slice, p_max_slice, _left;
        ELSIF p_types THEN
            RETURN QUERY SELECT e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_type, e.entity_type
            FROM projections.events AS e
            WHERE e.entity_type = _one
            AND e.db_timestamp >= _from
            AND e.db_timestamp <= _until
            AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr)
                > (p_after_timestamp, p_after_slice::smallint, p_after_source_id, p_after_seq_nr)
            AND e.slice BETWEEN p_min_slice AND p_max_slice
            ORDER BY e.entity_type, e.db_timestamp, e.slice, e.source_id, e.seq_nr
            LIMIT _left;
        ELSE
            RETURN QUERY SELECT e.source_id, e.seq_nr, e.db_timestamp, e.slice, NULL::text, e.entity_type
            FROM projections.events AS e
            WHERE e.entity_type = _one
            AND e.db_timestamp >= _from
            AND e.db_timestamp <= _until
            AND (e.db_timestamp, e.slice, e.source_id, e.seq_nr)
                > (p_after_timestamp, p_after_slice::smallint, p_after_source_id, p_after_seq_nr)
            AND e.slice BETWEEN p_min_slice AND p_max_slice
            ORDER BY e.entity_type, e.db_timestamp, e.slice, e.source_id, e.seq_nr
            LIMIT _left;
        END IF;
        GET DIAGNOSTICS _found = ROW_COUNT;
        _left := _left - _found;
        EXIT WHEN _left <= 0 OR _until >= p_until;
        _from := _until + interval '1 microsecond';
        _intervals := 2 * _intervals;
    END LOOP;
END;
$$;
