-- When the event before a given one was written; no row where it is not visible or was deleted.
-- Planned as load_events_v1.
CREATE OR REPLACE FUNCTION projections.predecessors_v1(p_source_ids text[], p_seq_nrs bigint[])
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz)
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT k.source_id, k.seq_nr, e.db_timestamp
    FROM unnest(p_source_ids, p_seq_nrs) AS k (source_id, seq_nr)
    INNER JOIN projections.events AS e ON k.source_id = e.source_id AND e.seq_nr = k.seq_nr - 1;
END;
$$;
