-- Stores offsets of known sources by reading all that there are, once: for save_offsets_v1, where these are most of them.
-- Returns how many were stored; those that do not stand where they are remembered are left alone.
CREATE OR REPLACE FUNCTION projections._save_most_offsets_v1(
    p_projection_id integer, p_source_ids text[], p_previous bigint[], p_seq_nrs bigint[], p_timestamps timestamptz[]
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_nestloop = off
SET enable_mergejoin = off
SET enable_hashjoin = on
SET enable_seqscan = on
AS $$
DECLARE
    _saved bigint;
BEGIN
    UPDATE projections.source_offsets AS o
    SET seq_nr = s.seq_nr, db_timestamp = s.db_timestamp
    FROM unnest(p_source_ids, p_previous, p_seq_nrs, p_timestamps) AS s (source_id, previous, seq_nr, db_timestamp)
    WHERE o.projection_id = p_projection_id AND o.source_id = s.source_id COLLATE "C" AND o.seq_nr = s.previous;
    GET DIAGNOSTICS _saved = ROW_COUNT;
    RETURN _saved;
END;
$$;
