-- Whether a batch of a projection may leave out offsets of old events (_evict_up_to_v1): the projection has one range, is not inline and is
-- not being rebuilt, its worker has read all imports (p_import_id is the last one), and none is newer than p_retention: history is often
-- imported in pieces, and the next piece is refused where offsets are gone.
CREATE OR REPLACE FUNCTION projections._may_evict_v1(p_projection_id integer, p_import_id bigint, p_retention interval)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM projections.projections AS p
        WHERE p.projection_id = p_projection_id AND p.mode = 'live' AND p.journal IS NULL
        AND EXISTS (
            SELECT FROM projections.projection_ranges AS r
            WHERE r.projection_id = p.projection_id AND r.min_slice = 0 AND r.max_slice = 1023
        )
        AND NOT EXISTS (
            SELECT FROM projections.rebuilds AS b WHERE b.projection_id = p.projection_id AND b.state IN ('folding', 'verified')
        )
        AND NOT EXISTS (
            SELECT FROM projections.imports AS i
            WHERE i.import_id > p_import_id AND coalesce(i.entity_type = ANY (p.entity_types), TRUE)
        )
        AND coalesce((
            SELECT i.imported_at < clock_timestamp() - p_retention FROM projections.imports AS i ORDER BY i.import_id DESC LIMIT 1
        ), TRUE)
    );
END;
$$;
