-- Says who is to hold which range; the owner of a range that is assigned to another gives it up. Forgets workers that
-- have not been heard of for an hour. A row that a transaction holds locked is left for the next time: one of a worker
-- that hangs must not keep the others from theirs.
CREATE OR REPLACE FUNCTION projections.assign_ranges_v1(
    p_projection_id integer, p_min_slices integer[], p_assigned_to text[]
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    DELETE FROM projections.workers AS w WHERE w.lease_until < clock_timestamp() - INTERVAL '1 hour';
    UPDATE projections.projection_ranges AS r SET assigned_to = a.assigned_to
    FROM (
        SELECT f.min_slice, n.assigned_to
        FROM projections.projection_ranges AS f
        INNER JOIN unnest(p_min_slices, p_assigned_to) AS n (min_slice, assigned_to) ON f.min_slice = n.min_slice
        WHERE f.projection_id = p_projection_id
        FOR UPDATE OF f SKIP LOCKED
    ) AS a
    WHERE r.projection_id = p_projection_id AND r.min_slice = a.min_slice;
$$;
