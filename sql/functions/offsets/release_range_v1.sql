-- Gives a range back with its horizon, so that the next claim need not wait for the lease to end.
CREATE OR REPLACE FUNCTION projections.release_range_v1(
    p_projection_id integer, p_min_slice integer, p_epoch bigint, p_horizon timestamptz, p_import_id bigint
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r
    SET owner = NULL, horizon = p_horizon, import_id = p_import_id
    WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice AND r.epoch = p_epoch
$$;
