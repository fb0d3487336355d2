-- The same page as read_events_by_slices_v1, with JSON as it is stored and without a limit of bytes: for a statement of a read model, which
-- runs over a whole page. Payloads that are stored apart are read only where the statement looks at them.
CREATE OR REPLACE FUNCTION projections._events_of_page_v1(
    p_entity_types text[],
    p_min_slice integer,
    p_max_slice integer,
    p_after_timestamp timestamptz,
    p_after_slice integer,
    p_after_source_id text,
    p_after_seq_nr bigint,
    p_until timestamptz,
    p_limit integer
)
RETURNS TABLE (
    source_id text, seq_nr bigint, db_timestamp timestamptz, slice smallint, event_id uuid, entity_type text, event_type text,
    version smallint, payload json
)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _types CONSTANT text[] := coalesce(p_entity_types, ARRAY(SELECT projections._entity_types_v1()));
    _page CONSTANT text := projections._merged_types_v1(
        _types, 'e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version, e.payload'
    );
    _from timestamptz := p_after_timestamp;
    _until timestamptz;
    _intervals integer := 1;
    _left bigint := p_limit;
    _found bigint;
BEGIN
    IF _types = '{}' THEN
        RETURN;
    ELSIF cardinality(_types) > 1 THEN
        p_until := projections._merged_end_v1(_types, p_after_timestamp, p_until);
    END IF;
    LOOP
        _until := projections._page_end_v1(_from, p_until, _intervals);
        RETURN QUERY EXECUTE _page
        USING _from, _until, p_after_timestamp, p_after_slice, p_after_source_id, p_after_seq_nr, p_min_slice, p_max_slice, _left;
        GET DIAGNOSTICS _found = ROW_COUNT;
        _left := _left - _found;
        EXIT WHEN _left <= 0 OR _until >= p_until;
        _from := _until + interval '1 microsecond';
        _intervals := 2 * _intervals;
    END LOOP;
END;
$$;
