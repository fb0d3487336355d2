-- A source's events with numbers from p_from to p_to, a page at a time; backwards from p_to where p_backwards is set. Backwards
-- it begins with the time of the source's last event, and looks on in longer and longer times until it has all: partitions
-- of times before are not opened. Where the first event lies is not known.
CREATE OR REPLACE FUNCTION projections.read_source_v1(
    p_source_id text, p_from bigint, p_to bigint, p_backwards boolean, p_limit integer
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
    tags text[]
)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _left bigint;
    _until timestamptz;
    _since timestamptz;
    _interval interval;
    _found bigint;
BEGIN
    -- Two queries, because an order that depends on a parameter can use no index.
    IF p_backwards THEN
        SELECT least(p_limit, least(p_to, s.seq_nr) - p_from + 1), s.db_timestamp, t.partition_interval INTO _left, _until, _interval
        FROM projections.sources AS s CROSS JOIN projections.partition_settings AS t
        WHERE s.source_id = p_source_id AND t.table_name = 'events';
        WHILE _left > 0 AND _until > '1970-01-01T00:00:00Z' LOOP
            _since := _until - _interval;
            RETURN QUERY SELECT
                e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
                e.payload::text, e.metadata::text, e.tags
            FROM projections.events AS e
            WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
            AND e.db_timestamp > _since AND e.db_timestamp <= _until
            ORDER BY e.seq_nr DESC LIMIT _left;
            GET DIAGNOSTICS _found = ROW_COUNT;
            _left := _left - _found;
            _until := _since;
            _interval := 2 * _interval;
        END LOOP;
    ELSE
        RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags
        FROM projections.events AS e
        WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
        ORDER BY e.seq_nr LIMIT p_limit;
    END IF;
END;
$$;
