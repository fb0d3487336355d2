-- Prolongs an owner's leases; returns the ranges that are still its own, and what its workers should know: whether the
-- projection is paused, and whether somebody has decided about a parked source.
CREATE OR REPLACE FUNCTION projections.renew_ranges_v1(p_projection_id integer, p_owner text, p_lease interval)
RETURNS TABLE (min_slice smallint, epoch bigint, paused boolean, decided boolean)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r
    SET lease_until = clock_timestamp() + p_lease
    FROM projections.projections AS p
    WHERE r.projection_id = p_projection_id AND r.owner = p_owner AND p.projection_id = r.projection_id
    RETURNING r.min_slice, r.epoch, p.paused, EXISTS (
        SELECT FROM projections.parked_sources AS k
        WHERE k.projection_id = p_projection_id AND k.decision <> 'waiting'
    )
$$;
