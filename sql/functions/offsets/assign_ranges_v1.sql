-- Says who is to hold which range; the owner of a range that is assigned to another gives it up. Forgets workers that
-- have not been heard of for an hour.
CREATE OR REPLACE FUNCTION projections.assign_ranges_v1(
    p_projection_id integer, p_min_slices integer[], p_assigned_to text[]
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM projections.workers AS w WHERE w.lease_until < clock_timestamp() - INTERVAL '1 hour';
    UPDATE projections.projection_ranges AS r SET assigned_to = a.assigned_to
    FROM unnest(p_min_slices, p_assigned_to) AS a (min_slice, assigned_to)
    WHERE r.projection_id = p_projection_id AND r.min_slice = a.min_slice;
$$;
