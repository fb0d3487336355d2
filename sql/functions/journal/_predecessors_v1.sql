-- When the event before a given one was written, of those written from p_since on and before p_until, the time of the newest
-- that is given; no row where it is older, is not visible or was deleted. Planned as _events_by_keys_v1.
CREATE OR REPLACE FUNCTION projections._predecessors_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_since timestamptz, p_until timestamptz
)
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET search_path = pg_catalog, pg_temp
SET enable_nestloop = on
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT k.source_id, k.seq_nr, e.db_timestamp
    FROM unnest(p_source_ids, p_seq_nrs) AS k (source_id, seq_nr)
    CROSS JOIN LATERAL (
        SELECT e.db_timestamp FROM projections.events AS e
        WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr - 1
        AND e.db_timestamp >= p_since AND e.db_timestamp < p_until
        LIMIT 1
    ) AS e;
END;
$$;
