-- Deletes the offsets of sources in the transaction of a batch that stores none of them (_evict_up_to_v1).
CREATE OR REPLACE FUNCTION projections._forget_offsets_v1(p_projection_id integer, p_source_ids text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    DELETE FROM projections.source_offsets AS o
    USING (
        SELECT p_projection_id AS projection_id, u.source_id COLLATE "C" AS source_id
        FROM unnest(p_source_ids) AS u (source_id)
        OFFSET 0
    ) AS s
    WHERE o.projection_id = s.projection_id AND o.source_id = s.source_id;
END;
$$;
