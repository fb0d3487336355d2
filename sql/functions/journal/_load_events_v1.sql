-- The events of given keys, in the order of the log; those that are not there are left out. A page is bounded as that of
-- read_events_by_slices_v1.
CREATE OR REPLACE FUNCTION projections._load_events_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[], p_bytes bigint DEFAULT 8388608
)
RETURNS SETOF projections.paged_events
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= p_bytes, FALSE)
    FROM (
        SELECT
            e.*,
            sum(e.bytes) OVER (ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
        FROM (
            SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
            FROM projections._events_by_keys_v1(p_source_ids, p_seq_nrs, p_timestamps, FALSE) AS e
        ) AS e
    ) AS e
    WHERE (e.total - e.bytes < p_bytes) IS NOT FALSE
    ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr;
END;
$$;
