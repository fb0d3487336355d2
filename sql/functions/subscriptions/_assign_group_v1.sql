-- Assigns the ranges of a group to its readers; for poll_group_v1, which has locked the group.
CREATE OR REPLACE FUNCTION projections._assign_group_v1(p_group_id integer)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH moved AS (
        SELECT locked.row_id, s.assigned_to
        FROM (
            SELECT
                array_agg(r.min_slice ORDER BY r.min_slice) AS min_slices,
                array_agg(r.assigned_to ORDER BY r.min_slice) AS assigned_to
            FROM projections.group_ranges AS r WHERE r.group_id = p_group_id AND r.handler_id IS NULL
        ) AS a
        CROSS JOIN LATERAL projections._share_ranges_v1(a.min_slices, a.assigned_to, ARRAY(
            SELECT o.owner FROM projections.workers AS o WHERE o.group_id = p_group_id ORDER BY o.joined_at, o.owner
        )) AS s
        CROSS JOIN LATERAL (
            SELECT r.ctid AS row_id FROM projections.group_ranges AS r
            WHERE r.group_id = p_group_id AND r.min_slice = s.min_slice AND coalesce(r.handler_id, 0) = 0 FOR UPDATE SKIP LOCKED
        ) AS locked
    )
    UPDATE projections.group_ranges AS r SET assigned_to = m.assigned_to
    FROM moved AS m WHERE r.ctid = m.row_id;
    -- A handler's own: to whoever is to read its slices, or it stays, or to the one that joined first, of those that have the handler.
    WITH wanted AS (
        SELECT h.ctid AS row_id, (
            SELECT o.owner FROM projections.workers AS o
            WHERE o.group_id = p_group_id AND h.handler_id = ANY (o.handlers)
            ORDER BY o.owner = (
                SELECT t.assigned_to FROM projections.group_ranges AS t
                WHERE t.group_id = p_group_id AND t.min_slice = h.min_slice AND coalesce(t.handler_id, 0) = 0
            ) DESC, o.owner = h.assigned_to DESC, o.joined_at, o.owner
            LIMIT 1
        ) AS assigned_to
        FROM projections.group_ranges AS h WHERE h.group_id = p_group_id AND h.handler_id IS NOT NULL
        FOR UPDATE SKIP LOCKED
    )
    UPDATE projections.group_ranges AS r SET assigned_to = w.assigned_to
    FROM wanted AS w
    WHERE r.ctid = w.row_id AND r.assigned_to IS DISTINCT FROM w.assigned_to
$$;
