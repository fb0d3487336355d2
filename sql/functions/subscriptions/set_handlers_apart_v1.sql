-- What a range of a group passes over on its way to a cursor, because its reader does not have the handler, stays to be read:
-- each such handler gets a range of its own, which begins where this one stands. p_handlers are those that the reader has,
-- p_passed the subscriptions of matches that it came by and has no handler for. An event that a handler of the same name has
-- got is not passed over, whichever of its subscriptions brought it. Returns the names of the handlers. For move_cursor_v1,
-- which has locked the range.
CREATE OR REPLACE FUNCTION projections.set_handlers_apart_v1(
    p_group_id integer, p_min_slice integer, p_cursor bigint, p_handlers integer[], p_passed bigint[]
)
RETURNS text[]
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    WITH apart AS (
        INSERT INTO projections.group_ranges (group_id, min_slice, max_slice, cursor, moved_at, epoch, handler_id)
        SELECT r.group_id, r.min_slice, r.max_slice, r.cursor, clock_timestamp(), r.epoch, h.handler_id
        FROM projections.group_ranges AS r
        INNER JOIN projections.group_handlers AS h ON r.group_id = h.group_id
        WHERE r.group_id = p_group_id AND r.min_slice = p_min_slice AND r.handler_id IS NULL
        AND h.subscription_id = ANY (p_passed) AND h.handler_id <> ALL (p_handlers)
        AND NOT EXISTS (
            SELECT FROM projections.group_ranges AS o
            WHERE o.group_id = p_group_id AND o.min_slice = p_min_slice AND o.handler_id = h.handler_id
        )
        AND EXISTS (
            SELECT FROM projections.matches AS m
            WHERE m.group_id = p_group_id AND m.match_id > r.cursor AND m.match_id <= p_cursor
            AND m.slice BETWEEN r.min_slice AND r.max_slice AND h.subscription_id = ANY (m.subscription_ids)
            AND NOT EXISTS (
                SELECT FROM projections.group_handlers AS o
                WHERE o.subscription_id = ANY (m.subscription_ids) AND o.name = h.name AND o.handler_id = ANY (p_handlers)
            )
        )
        RETURNING handler_id
    )
    SELECT array_agg(h.name ORDER BY h.name) FROM apart AS a
    INNER JOIN projections.group_handlers AS h ON a.handler_id = h.handler_id
$$;
