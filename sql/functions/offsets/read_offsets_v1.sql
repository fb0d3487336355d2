-- Where given sources stand in a projection; no row for one that is not known.
CREATE OR REPLACE FUNCTION projections.read_offsets_v1(p_projection_id integer, p_source_ids text[])
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
    RETURN QUERY SELECT k.source_id, o.seq_nr
    FROM unnest(p_source_ids) AS k (source_id)
    CROSS JOIN LATERAL (
        SELECT o.seq_nr FROM projections.source_offsets AS o
        WHERE o.projection_id = p_projection_id AND o.source_id = k.source_id LIMIT 1
    ) AS o;
END;
$$;
