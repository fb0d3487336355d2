-- The events of given keys, in the order of the log. It is planned with the times of the oldest and the newest as values: no
-- partition of another time is opened. Each key is looked up: knowing how many there are, the planner would rather read the
-- whole log.
CREATE OR REPLACE FUNCTION projections.load_events_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[]
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
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_timestamps) AS k (at);
    RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS k (source_id, seq_nr, db_timestamp)
    INNER JOIN projections.events AS e
        ON k.source_id = e.source_id AND k.seq_nr = e.seq_nr AND k.db_timestamp = e.db_timestamp
    WHERE e.db_timestamp BETWEEN _oldest AND _newest
    ORDER BY e.db_timestamp, e.slice, e.source_id, e.seq_nr;
END;
$$;
