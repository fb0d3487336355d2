-- Makes sure that a range of a group is as its reader remembers it: held by it, with this epoch, its cursor neither before the
-- one that the reader has stored nor after the place up to which it has read. p_matched_at is the time of the match at that
-- place; NULL where the place is the stored cursor. p_handler names a range that is one handler's own. Returns TRUE, to be asked in
-- the statement that reads on.
-- Raises PJ010 where another reader holds the range, PJ013 where the database went back in time, or somebody has moved the cursor.
CREATE OR REPLACE FUNCTION projections.check_group_range_v1(
    p_group text, p_min_slice integer, p_epoch bigint, p_owner text, p_cursor bigint, p_place bigint, p_matched_at timestamptz,
    p_handler integer DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _range record;
BEGIN
    SELECT r.epoch, r.owner, r.cursor INTO _range
    FROM projections.subscription_groups AS g INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    WHERE g.name = p_group AND r.min_slice = p_min_slice AND r.handler_id IS NOT DISTINCT FROM p_handler;
    IF NOT FOUND OR _range.epoch IS DISTINCT FROM p_epoch OR _range.owner IS DISTINCT FROM p_owner THEN
        RAISE EXCEPTION 'the slices of group % from % on are no longer held with epoch % by %',
            quote_literal(p_group), p_min_slice, p_epoch, quote_nullable(p_owner)
        USING ERRCODE = 'PJ010', HINT = 'Poll the group again, and read from the cursor that it returns.';
    ELSIF _range.cursor < p_cursor OR _range.cursor > p_place THEN
        RAISE EXCEPTION 'the cursor of group % is at %, and its reader had stored %: the database went back in time, or somebody '
            'has moved it', quote_literal(p_group), _range.cursor, p_cursor
        USING ERRCODE = 'PJ013', HINT = 'Poll the group again, and read from the cursor that it returns.';
    END IF;
    RETURN p_matched_at IS NULL OR projections.check_place_v1(p_group, p_place, p_matched_at);
END;
$$;
