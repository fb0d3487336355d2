-- Notes that a range has failed and when it starts again; its next batch takes that back.
CREATE OR REPLACE FUNCTION projections._fail_range_v1(
    p_projection_id integer, p_min_slice integer, p_epoch bigint, p_failures integer, p_error text, p_delay interval
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r
    SET failures = p_failures, error = p_error, restarts_at = clock_timestamp() + p_delay
    WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice AND r.epoch = p_epoch
$$;
