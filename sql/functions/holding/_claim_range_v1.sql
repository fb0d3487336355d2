-- Claims again a range that its owner holds already: no row when it is another's by now. What the owner still has in
-- flight on another connection fails on the new epoch, so the horizon that is returned is where to begin.
CREATE OR REPLACE FUNCTION projections._claim_range_v1(p_projection_id integer, p_min_slice integer, p_owner text)
RETURNS TABLE (max_slice smallint, epoch bigint, horizon timestamptz, import_id bigint, commits bigint)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r
    SET epoch = r.epoch + 1, claimed_at = clock_timestamp()
    WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice AND r.owner = p_owner
    RETURNING r.max_slice, r.epoch, r.horizon, r.import_id, r.commits
$$;
