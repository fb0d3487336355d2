-- Assigns the ranges of a projection to the workers that are alive; the owner of a range that is assigned to another gives
-- it up. One does it at a time: the caller has locked the row of the projection. Forgets workers that have not been heard of
-- for an hour. A row that a transaction holds locked is left for the next time: one of a worker that hangs must not keep the
-- others from theirs.
CREATE OR REPLACE FUNCTION projections._assign_ranges_v1(p_projection_id integer)
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
    WITH moved AS (
        SELECT locked.row_id, s.assigned_to
        FROM (
            SELECT
                array_agg(r.min_slice ORDER BY r.min_slice) AS min_slices,
                array_agg(r.assigned_to ORDER BY r.min_slice) AS assigned_to
            FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id
        ) AS a
        CROSS JOIN LATERAL projections._share_ranges_v1(
            a.min_slices, a.assigned_to, _workers[_first + 1:] || _workers[:_first]
        ) AS s
        CROSS JOIN LATERAL (
            SELECT r.ctid AS row_id FROM projections.projection_ranges AS r
            WHERE r.projection_id = p_projection_id AND r.min_slice = s.min_slice FOR UPDATE SKIP LOCKED
        ) AS locked
    )
    UPDATE projections.projection_ranges AS r SET assigned_to = m.assigned_to
    FROM moved AS m WHERE r.ctid = m.row_id;
END;
$$;
