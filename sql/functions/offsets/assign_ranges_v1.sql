-- Assigns the ranges of a projection to the workers that are alive; the owner of a range that is assigned to another gives
-- it up. One does it at a time: the caller has locked the row of the projection. Forgets workers that have not been heard of
-- for an hour. A row that a transaction holds locked is left for the next time: one of a worker that hangs must not keep the
-- others from theirs.
CREATE OR REPLACE FUNCTION projections.assign_ranges_v1(p_projection_id integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _workers CONSTANT text[] := ARRAY(
        SELECT w.owner FROM projections.workers AS w
        WHERE p_projection_id = ANY(w.projection_ids) AND w.lease_until > clock_timestamp() AND NOT w.leaving
        ORDER BY w.joined_at, w.owner
    );
    -- So that of many projections with one range each, not all go to one worker.
    _first CONSTANT integer := p_projection_id % greatest(cardinality(_workers), 1);
BEGIN
    DELETE FROM projections.workers AS w
    USING (
        SELECT g.owner FROM projections.workers AS g
        WHERE g.lease_until < clock_timestamp() - INTERVAL '1 hour' FOR UPDATE SKIP LOCKED
    ) AS gone
    WHERE w.owner = gone.owner;
    WITH shared AS (
        SELECT
            array_agg(r.min_slice ORDER BY r.min_slice) AS min_slices,
            projections.share_ranges_v1(
                array_agg(r.assigned_to ORDER BY r.min_slice), _workers[_first + 1:] || _workers[:_first],
                array_agg(r.max_slice - r.min_slice + 1 ORDER BY r.min_slice)
            ) AS assigned_to
        FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id
    ), moved AS (
        SELECT r.min_slice, n.assigned_to
        FROM shared AS s
        CROSS JOIN LATERAL unnest(s.min_slices, s.assigned_to) AS n (min_slice, assigned_to)
        INNER JOIN projections.projection_ranges AS r ON n.min_slice = r.min_slice
        WHERE r.projection_id = p_projection_id AND r.assigned_to IS DISTINCT FROM n.assigned_to
        FOR UPDATE OF r SKIP LOCKED
    )
    UPDATE projections.projection_ranges AS r SET assigned_to = m.assigned_to
    FROM moved AS m WHERE r.projection_id = p_projection_id AND r.min_slice = m.min_slice;
END;
$$;
