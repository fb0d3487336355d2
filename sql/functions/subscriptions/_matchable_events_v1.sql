-- Events of given keys as conditions see them, in the order of their places. Planned as _events_by_keys_v1.
-- Whoever matches gives those of older versions along, as they are in the newest one, in the setting projections.newest_events: by
-- source and number an object with the version and the text of the payload.
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
    _latest timestamptz;
    _newest CONSTANT jsonb := nullif(current_setting('projections.newest_events', TRUE), '');
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _latest FROM unnest(p_db_timestamps) AS k (at);
    RETURN QUERY
    SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.event_type,
        coalesce((n.event ->> 'version')::smallint, e.version),
        CASE WHEN n.event IS NULL THEN e.payload::jsonb ELSE projections._as_jsonb_v1((n.event ->> 'payload')::json) END,
        e.metadata::jsonb, e.tags
    FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, place)
    CROSS JOIN LATERAL (
        SELECT e.* FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _latest LIMIT 1
    ) AS e
    CROSS JOIN LATERAL (SELECT _newest -> e.source_id -> e.seq_nr::text AS event) AS n
    ORDER BY k.place;
EXCEPTION
    -- One of them is JSON that jsonb cannot hold: only now each is converted by itself, which takes five times as long.
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN QUERY
        SELECT
            e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.topic,
            coalesce((n.event ->> 'version')::smallint, e.version),
            CASE WHEN n.event IS NULL THEN e.payload ELSE projections._as_jsonb_v1((n.event ->> 'payload')::json) END,
            e.metadata, e.tags
        FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, place)
        CROSS JOIN LATERAL (
            SELECT e.* FROM projections.matchable_events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
            AND e.db_timestamp BETWEEN _oldest AND _latest LIMIT 1
        ) AS e
        CROSS JOIN LATERAL (SELECT _newest -> e.source_id -> e.seq_nr::text AS event) AS n
        ORDER BY k.place;
END;
$$;
