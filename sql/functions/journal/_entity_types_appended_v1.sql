-- The entity types of events that are in the journal with these numbers and times, with their ordinals in the arrays. What was
-- rolled back, or lost by a database that went back in time, is not found, nor what was appended in its place. The type is NULL
-- for those whose time is before that of all partitions: they have left the journal with theirs.
-- Planned and looked up as _events_by_keys_v1 does it.
CREATE OR REPLACE FUNCTION projections._entity_types_appended_v1(p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[])
RETURNS TABLE (ordinal bigint, entity_type text)
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
#variable_conflict use_column
DECLARE
    _oldest timestamptz;
    _newest timestamptz;
    _kept timestamptz;
BEGIN
    SELECT min(k.at), max(k.at) INTO _oldest, _newest FROM unnest(p_timestamps) AS k (at);
    -- No partition is dropped earlier.
    IF _oldest < clock_timestamp() - interval '1 minute' THEN
        SELECT min(p.from_timestamp) INTO _kept FROM projections.partitions AS p WHERE p.table_name = 'events' AND NOT p.is_default;
    END IF;
    RETURN QUERY SELECT k.ordinal, e.entity_type
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, ordinal)
    LEFT JOIN LATERAL (
        SELECT e.entity_type FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _newest LIMIT 1
    ) AS e ON TRUE
    WHERE e.entity_type IS NOT NULL OR k.db_timestamp < _kept;
END;
$$;
