-- Claims a range for an owner: no row when another one's lease still runs, unless it is to be taken over.
-- The new epoch makes everything that an earlier holder still tries to commit fail.
CREATE OR REPLACE FUNCTION projections.claim_range_v1(
    p_projection_id integer, p_min_slice integer, p_owner text, p_lease interval, p_take_over boolean DEFAULT FALSE
)
RETURNS TABLE (max_slice smallint, epoch bigint, horizon timestamptz, import_id bigint)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r
    SET epoch = r.epoch + 1, owner = p_owner, lease_until = clock_timestamp() + p_lease
    WHERE r.projection_id = p_projection_id
    AND r.min_slice = p_min_slice
    AND (p_take_over OR r.owner IS NULL OR r.owner = p_owner OR r.lease_until < clock_timestamp())
    RETURNING r.max_slice, r.epoch, r.horizon, r.import_id
$$;
