-- Gives a range back with its horizon, so that the next claim need not wait for the lease to end. False, and nothing is
-- stored, when the range is not as its owner remembers it.
CREATE OR REPLACE FUNCTION projections.release_range_v1(
    p_projection_id integer, p_min_slice integer, p_epoch bigint, p_owner text, p_commits bigint,
    p_answered bigint, p_timeline integer, p_started_at timestamptz, p_horizon timestamptz, p_import_id bigint
)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH released AS (
        UPDATE projections.projection_ranges AS r
        SET owner = NULL, horizon = p_horizon, import_id = p_import_id, commits = r.commits + 1
        WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice
        AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits
        AND (SELECT projections._same_generation_v1(p_owner, p_answered, p_timeline, p_started_at))
        RETURNING r.min_slice
    )
    SELECT EXISTS (SELECT FROM released)
$$;
