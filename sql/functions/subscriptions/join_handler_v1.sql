-- Has a handler that has a range of its own read with all others again: where its reader holds both ranges, and has nothing left
-- to read for it up to where the others are. Returns whether that was so; else nothing has changed.
CREATE OR REPLACE FUNCTION projections.join_handler_v1(p_group text, p_min_slice integer, p_handler integer, p_owner text)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _together record;
    _subscription bigint;
    _cursor bigint;
BEGIN
    SELECT r.group_id, r.cursor, r.max_slice INTO _together
    FROM projections.subscription_groups AS g INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    WHERE g.name = p_group AND r.min_slice = p_min_slice AND r.handler_id IS NULL AND r.owner = p_owner
    FOR NO KEY UPDATE OF r;
    IF NOT FOUND THEN
        RETURN FALSE;
    END IF;
    SELECT r.cursor, h.subscription_id INTO _cursor, _subscription
    FROM projections.group_ranges AS r INNER JOIN projections.group_handlers AS h ON r.handler_id = h.handler_id
    WHERE r.group_id = _together.group_id AND r.min_slice = p_min_slice AND r.handler_id = p_handler AND r.owner = p_owner
    FOR UPDATE OF r;
    IF NOT FOUND OR EXISTS (
        SELECT FROM projections.matches AS m
        WHERE m.group_id = _together.group_id AND m.match_id > _cursor AND m.match_id <= _together.cursor
        AND m.slice BETWEEN p_min_slice AND _together.max_slice AND _subscription = ANY (m.subscription_ids)
    ) THEN
        RETURN FALSE;
    END IF;
    DELETE FROM projections.group_ranges AS r
    WHERE r.group_id = _together.group_id AND r.min_slice = p_min_slice AND r.handler_id = p_handler;
    RETURN TRUE;
END;
$$;
