-- Says that a range of a group has handled everything up to a match. Raises PJ010 when the range is not held with this epoch
-- any more, and PJ084 for a cursor that is not one of the group's matches, or lies before the stored one.
--
-- A reader that stays while the database goes back in time gives what it remembers alongside it, or events of the new history that
-- have got numbers of the old one would count as handled: its name, the cursor that it knows to be stored, and the time of the
-- match. Where that is not what the database has, PJ013 is raised, and nothing moves.
--
-- p_handler names a range that is one handler's own. A reader that has handlers of its own, rather than one for all that matches,
-- gives them (p_handlers): what has matched for others is kept for them, by _set_handlers_apart_v1.
-- Returns the names of the handlers that something is kept for from now on; NULL for none.
CREATE OR REPLACE FUNCTION projections.move_cursor_v1(
    p_group text,
    p_min_slice integer,
    p_epoch bigint,
    p_cursor bigint,
    p_owner text DEFAULT NULL,
    p_stored bigint DEFAULT NULL,
    p_matched_at timestamptz DEFAULT NULL,
    p_handler integer DEFAULT NULL,
    p_handlers integer[] DEFAULT NULL
)
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _range record;
    _apart text[];
BEGIN
    SELECT r.group_id, r.epoch, r.cursor, r.min_slice INTO _range
    FROM projections.subscription_groups AS g INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    WHERE g.name = p_group AND r.min_slice = p_min_slice AND r.handler_id IS NOT DISTINCT FROM p_handler
    FOR NO KEY UPDATE OF r;
    IF NOT FOUND OR _range.epoch IS DISTINCT FROM p_epoch THEN
        RAISE EXCEPTION 'the slices of group % from % on are no longer held with epoch %', quote_literal(p_group), p_min_slice, p_epoch
        USING ERRCODE = 'PJ010', HINT = 'Poll the group again, and read from the cursor that it returns.';
    ELSIF p_owner IS NOT NULL AND p_cursor >= _range.cursor THEN
        PERFORM projections.check_group_range_v1(
            p_group, p_min_slice, p_epoch, p_owner, p_stored, p_cursor, p_matched_at, p_handler
        );
    END IF;
    IF p_cursor = _range.cursor THEN
        RETURN NULL;
    ELSIF p_cursor < _range.cursor THEN
        RAISE EXCEPTION 'the cursor of group % is at % already, which is after %', quote_literal(p_group), _range.cursor, p_cursor
        USING ERRCODE = 'PJ084';
    ELSIF NOT EXISTS (
        SELECT FROM projections.matches AS m WHERE m.group_id = _range.group_id AND m.match_id = p_cursor
    ) THEN
        RAISE EXCEPTION '% is not a match of group %', p_cursor, quote_literal(p_group)
        USING ERRCODE = 'PJ084', HINT = 'A cursor is the match_id of a row that was read for this group.';
    END IF;
    IF p_handlers IS NOT NULL AND p_handler IS NULL THEN
        _apart := projections._set_handlers_apart_v1(_range.group_id, p_min_slice, p_cursor, p_handlers);
    END IF;
    UPDATE projections.group_ranges AS r SET cursor = p_cursor, moved_at = clock_timestamp()
    WHERE r.group_id = _range.group_id AND r.min_slice = p_min_slice AND r.handler_id IS NOT DISTINCT FROM p_handler;
    RETURN _apart;
END;
$$;
