-- Which of the events of given keys have an older version than the one alongside: their places. None where no condition is there that
-- could be asked about them. Planned as _events_by_keys_v1.
CREATE OR REPLACE FUNCTION projections._older_events_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_db_timestamps timestamptz[], p_versions integer[]
)
RETURNS SETOF bigint
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
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
BEGIN
    IF NOT EXISTS (SELECT FROM projections.conditions) THEN
        RETURN;
    END IF;
    SELECT min(k.at), max(k.at) INTO _oldest, _latest FROM unnest(p_db_timestamps) AS k (at);
    RETURN QUERY
    SELECT k.place
    FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_versions)
    WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, version, place)
    CROSS JOIN LATERAL (
        SELECT e.version FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _latest LIMIT 1
    ) AS e
    WHERE e.version < k.version
    ORDER BY k.place;
END;
$$;
