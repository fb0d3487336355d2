-- Notes, in the transaction of a batch, that a projection reacts to events of sources up to a number, once for each source. Returns
-- up to where it has reacted before, for those sources of which there is such a number.
CREATE OR REPLACE FUNCTION projections._note_reactions_v1(p_projection_id integer, p_source_ids text[], p_seq_nrs bigint[])
RETURNS TABLE (source_id text, seq_nr bigint)
LANGUAGE plpgsql
VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT k.source_id, r.seq_nr
    FROM unnest(p_source_ids) AS k (source_id)
    CROSS JOIN LATERAL (
        SELECT r.seq_nr FROM projections.reactions AS r
        WHERE r.projection_id = p_projection_id AND r.source_id = k.source_id LIMIT 1
    ) AS r;
    INSERT INTO projections.reactions AS r (projection_id, source_id, seq_nr)
    SELECT p_projection_id, k.source_id, k.seq_nr FROM unnest(p_source_ids, p_seq_nrs) AS k (source_id, seq_nr) ORDER BY k.source_id COLLATE "C"
    ON CONFLICT (projection_id, source_id) DO UPDATE SET seq_nr = excluded.seq_nr WHERE r.seq_nr < excluded.seq_nr;
END;
$$;
