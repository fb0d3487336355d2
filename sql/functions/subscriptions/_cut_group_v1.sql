-- Cuts the slices of a group again, keeping its cursors: a range that is made of parts begins at the lowest of theirs, so
-- that what the others had read beyond it comes again. So do those that a handler has of its own. Every reader loses its
-- ranges, and takes those that it is assigned with its next poll.
CREATE OR REPLACE FUNCTION projections._cut_group_v1(p_group text, p_min_slices integer[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _group integer;
BEGIN
    SELECT g.group_id INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %: subscribe for it, or create it first', quote_literal(p_group) USING ERRCODE = 'PJ082';
    END IF;
    -- In the order of join_handler_v1.
    PERFORM FROM projections.group_ranges AS r WHERE r.group_id = _group ORDER BY r.min_slice, r.handler_id NULLS FIRST FOR UPDATE;
    IF p_min_slices = ARRAY(
        SELECT r.min_slice::integer FROM projections.group_ranges AS r WHERE r.group_id = _group AND r.handler_id IS NULL ORDER BY r.min_slice
    ) THEN
        RETURN;
    END IF;
    WITH old AS (
        DELETE FROM projections.group_ranges AS r WHERE r.group_id = _group RETURNING r.*
    )
    INSERT INTO projections.group_ranges (group_id, min_slice, max_slice, cursor, moved_at, epoch, handler_id, assigned_to)
    SELECT
        _group, w.min_slice, w.max_slice, min(o.cursor), max(o.moved_at), (SELECT max(m.epoch) FROM old AS m) + 1, h.handler_id,
        (array_agg(o.assigned_to ORDER BY o.min_slice))[1]
    FROM projections._cut_v1(p_min_slices) AS w
    CROSS JOIN (SELECT DISTINCT o.handler_id FROM old AS o) AS h
    INNER JOIN old AS o ON w.min_slice <= o.max_slice AND o.min_slice <= w.max_slice
    -- Where a handler has no range of its own, it stands where all others do.
    AND (o.handler_id IS NULL OR o.handler_id = h.handler_id)
    GROUP BY w.min_slice, w.max_slice, h.handler_id
    HAVING bool_or(o.handler_id IS NOT DISTINCT FROM h.handler_id);
END;
$$;
