-- The events of given keys, in the order of the log. It is planned with the times of the oldest and the newest as values: no
-- partition of another time is opened. Each key is looked up: knowing how many there are, the planner would rather read the
-- whole log. A page is bounded as that of read_events_by_slices_v1.
CREATE OR REPLACE FUNCTION projections._load_events_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[], p_bytes bigint DEFAULT 8388608
)
RETURNS SETOF projections.paged_events
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_nestloop = on
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_timestamps) AS k (at);
    RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags, coalesce(e.total >= p_bytes, FALSE)
    FROM (
        SELECT
            e.*,
            sum(e.bytes) OVER (ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr ROWS UNBOUNDED PRECEDING) AS total
        FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS k (source_id, seq_nr, db_timestamp)
        CROSS JOIN LATERAL (
            SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
            FROM projections.events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
            AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
        ) AS e
    ) AS e
    WHERE (e.total - e.bytes < p_bytes) IS NOT FALSE
    ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr;
END;
$$;
