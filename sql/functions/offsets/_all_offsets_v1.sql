-- The offsets of a projection, p_limit at most.
CREATE OR REPLACE FUNCTION projections._all_offsets_v1(p_projection_id integer, p_limit integer)
RETURNS TABLE (source_id text, seq_nr bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET plan_cache_mode = 'force_generic_plan'
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT o.source_id, o.seq_nr FROM projections.source_offsets AS o WHERE o.projection_id = p_projection_id LIMIT p_limit;
END;
$$;
