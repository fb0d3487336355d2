-- A source's events with numbers from p_from to p_to, a page at a time; backwards from p_to where p_backwards is set. Backwards
-- it begins with the time of the source's last event, and looks on in longer and longer times until it has all: partitions
-- of times before are not opened. Where the first event lies is not known. A page is bounded as that of
-- read_events_by_slices_v1.
CREATE OR REPLACE FUNCTION projections.read_source_v1(
    p_source_id text, p_from bigint, p_to bigint, p_backwards boolean, p_limit integer, p_bytes bigint DEFAULT 8388608
)
RETURNS SETOF projections.paged_events
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _until timestamptz;
    _since timestamptz;
    _interval interval;
    _left bigint;
    _rows bigint;
    _bytes bigint;
BEGIN
    -- Two queries, because an order that depends on a parameter can use no index.
    IF p_backwards THEN
        SELECT least(p_limit, least(p_to, s.seq_nr) - p_from + 1), s.db_timestamp, t.partition_interval INTO _left, _until, _interval
        FROM projections.sources AS s CROSS JOIN projections.partition_settings AS t
        WHERE s.source_id = p_source_id AND t.table_name = 'events';
        WHILE _left > 0 AND (p_bytes > 0) IS NOT FALSE AND _until > '1970-01-01T00:00:00Z' LOOP
            _since := _until - _interval;
            RETURN QUERY SELECT
                e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
                e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= p_bytes, FALSE)
            FROM (
                SELECT e.*, sum(e.bytes) OVER (ORDER BY e.seq_nr DESC ROWS UNBOUNDED PRECEDING) AS total
                FROM (
                    SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
                    FROM projections.events AS e
                    WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
                    AND e.db_timestamp > _since AND e.db_timestamp <= _until
                    ORDER BY e.seq_nr DESC LIMIT _left
                ) AS e
            ) AS e
            WHERE (e.total - e.bytes < p_bytes) IS NOT FALSE;
            -- What a source has does not change: these are those that were returned, or more where they were cut.
            SELECT count(*), sum(e.bytes) INTO _rows, _bytes
            FROM (
                SELECT projections._event_bytes_v1(e.payload, e.metadata) AS bytes
                FROM projections.events AS e
                WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
                AND e.db_timestamp > _since AND e.db_timestamp <= _until
                ORDER BY e.seq_nr DESC LIMIT _left
            ) AS e;
            _left := _left - _rows;
            p_bytes := p_bytes - coalesce(_bytes, 0);
            _until := _since;
            _interval := 2 * _interval;
        END LOOP;
    ELSE
        -- It opens all partitions: planned once for each session.
        PERFORM set_config('plan_cache_mode', 'force_generic_plan', TRUE);
        RETURN QUERY SELECT
            e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
            e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= p_bytes, FALSE)
        FROM (
            SELECT e.*, sum(e.bytes) OVER (ORDER BY e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
            FROM (
                SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
                FROM projections.events AS e
                WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
                ORDER BY e.seq_nr LIMIT p_limit
            ) AS e
        ) AS e
        WHERE (e.total - e.bytes < p_bytes) IS NOT FALSE;
    END IF;
END;
$$;
