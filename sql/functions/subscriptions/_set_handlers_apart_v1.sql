-- What a range of a group passes over on its way to a cursor, because its reader does not have the handler, stays to be read:
-- each such handler gets a range of its own, which begins where this one stands. p_handlers are those that the reader has. It is
-- for the handler by its name, whoever else has the same subscription; but an event that a handler of the same name has got is
-- not passed over, whichever of its subscriptions brought it. Returns the names of the handlers. For move_cursor_v1, which has
-- locked the range.
CREATE OR REPLACE FUNCTION projections._set_handlers_apart_v1(
    p_group_id integer, p_min_slice integer, p_cursor bigint, p_handlers integer[]
)
RETURNS text[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _range projections.group_ranges;
    _handler projections.group_handlers;
    _apart text[];
BEGIN
    SELECT r.* INTO _range FROM projections.group_ranges AS r
    WHERE r.group_id = p_group_id AND r.min_slice = p_min_slice AND r.handler_id IS NULL;
    FOR _handler IN
        SELECT h.* FROM projections.group_handlers AS h
        WHERE h.group_id = p_group_id AND h.handler_id <> ALL (p_handlers) AND NOT EXISTS (
            SELECT FROM projections.group_ranges AS o
            WHERE o.group_id = p_group_id AND o.min_slice = p_min_slice AND o.handler_id = h.handler_id
        )
        ORDER BY h.name
    LOOP
        IF EXISTS (
            SELECT FROM projections.matches AS m
            WHERE m.group_id = p_group_id AND m.match_id > _range.cursor AND m.match_id <= p_cursor
            AND m.slice BETWEEN _range.min_slice AND _range.max_slice AND _handler.subscription_id = ANY (m.subscription_ids)
            AND NOT EXISTS (
                SELECT FROM projections.group_handlers AS o
                WHERE o.subscription_id = ANY (m.subscription_ids) AND o.name = _handler.name AND o.handler_id = ANY (p_handlers)
            )
        ) THEN
            INSERT INTO projections.group_ranges (group_id, min_slice, max_slice, cursor, moved_at, epoch, handler_id)
            VALUES (
                p_group_id, _range.min_slice, _range.max_slice, _range.cursor, clock_timestamp(), _range.epoch, _handler.handler_id
            );
            _apart := _apart || _handler.name;
        END IF;
    END LOOP;
    RETURN _apart;
END;
$$;
