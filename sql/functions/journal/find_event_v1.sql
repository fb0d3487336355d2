-- The event of an id, or no row. A UUIDv7 is first looked for about where its time says, where most are, then everywhere.
CREATE OR REPLACE FUNCTION projections.find_event_v1(p_event_id uuid)
RETURNS SETOF projections.paged_events
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _since timestamptz := projections._uuid7_time_v1(p_event_id) - interval '1 day';
BEGIN
    IF _since IS NOT NULL THEN
        RETURN QUERY SELECT
            e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
            e.payload::text, e.metadata::text, e.tags, FALSE
        FROM projections.events AS e WHERE e.event_id = p_event_id
        AND e.db_timestamp BETWEEN _since AND _since + interval '2 days';
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags, FALSE
    FROM projections.events AS e WHERE e.event_id = p_event_id;
END;
$$;
