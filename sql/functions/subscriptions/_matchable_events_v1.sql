-- Events of given keys as conditions see them, in the order of their places. Planned as _events_by_keys_v1.
CREATE OR REPLACE FUNCTION projections._matchable_events_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_db_timestamps timestamptz[]
)
RETURNS SETOF projections.matchable_events
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
-- Each is looked up, whatever the caller has set: there may be billions.
SET enable_nestloop = on
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_db_timestamps) AS k (at);
    RETURN QUERY
    SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.event_type, e.version,
        e.payload::jsonb, e.metadata::jsonb, e.tags
    FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, place)
    CROSS JOIN LATERAL (
        SELECT e.* FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
    ) AS e
    ORDER BY k.place;
EXCEPTION
    -- One of them is JSON that jsonb cannot hold: only now each is converted by itself, which takes five times as long.
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN QUERY
        SELECT e.*
        FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, place)
        CROSS JOIN LATERAL (
            SELECT e.* FROM projections.matchable_events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
            AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
        ) AS e
        ORDER BY k.place;
END;
$$;
