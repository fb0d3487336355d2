-- Joins those who read for a group, or says that one of them is still there; assigns the ranges to the readers that are there, each
-- its even share of neighbours; and takes those that are assigned to this one and free. Returns the ranges that it has; one that is
-- not kept is assigned to another, and to be released. Call it a few times in each lease; a session needs no state for it.
-- p_handlers are the handlers that it has. A range of a handler's own is assigned to whoever is to read its slices, if that one has
-- the handler, and can join both; else to one that has it. Such a range names its handler; others name those that have one of their
-- own, and that are not to be called for them. What a transaction holds locked is left for the next time.
-- Raises PJ081 for a reader without a name or a lease, PJ082 when there is no such group; and, for one that says that it has
-- joined, PJ013 when the database does not know it: its lease is over, or the database went back to before it had joined, and
-- before it had subscribed.
CREATE OR REPLACE FUNCTION projections.poll_group_v1(
    p_group text,
    p_owner text,
    p_lease interval DEFAULT '10 seconds',
    p_joined boolean DEFAULT FALSE,
    p_handlers integer[] DEFAULT '{}'
)
RETURNS TABLE (min_slice smallint, max_slice smallint, epoch bigint, cursor bigint, kept boolean, handler_id integer, apart integer[])
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _group integer;
    _now CONSTANT timestamptz := clock_timestamp();
BEGIN
    IF coalesce(p_owner, '') = '' THEN
        RAISE EXCEPTION 'a reader has a name' USING ERRCODE = 'PJ081', HINT = 'One that nobody else has.';
    ELSIF coalesce(p_lease, interval '0') <= interval '0' THEN
        RAISE EXCEPTION 'a lease is longer than 0, not %', coalesce(p_lease::text, 'NULL') USING ERRCODE = 'PJ081';
    END IF;
    SELECT g.group_id INTO _group FROM projections.subscription_groups AS g WHERE g.name = p_group;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no group %: subscribe for it, or create it first', quote_literal(p_group) USING ERRCODE = 'PJ082';
    END IF;
    IF p_joined THEN
        UPDATE projections.workers AS r SET lease_until = _now + p_lease, handlers = coalesce(p_handlers, '{}')
        WHERE r.group_id = _group AND r.owner = p_owner;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'reader % of group % is not known: its lease is over, or the database went back in time',
                quote_literal(p_owner), quote_literal(p_group)
            USING ERRCODE = 'PJ013', HINT = 'Subscribe, and join the group again, by another name.';
        END IF;
    ELSE
        INSERT INTO projections.workers AS r (owner, host, pid, projection_ids, lease_until, group_id, handlers)
        VALUES (p_owner, '', 0, '{}', _now + p_lease, _group, coalesce(p_handlers, '{}'))
        ON CONFLICT (owner) DO UPDATE SET lease_until = excluded.lease_until, handlers = excluded.handlers
        WHERE r.group_id = excluded.group_id;
        IF NOT FOUND THEN
            RAISE EXCEPTION 'reader % of group % has the name of a worker, or of a reader of another group',
                quote_literal(p_owner), quote_literal(p_group)
            USING ERRCODE = 'PJ081', HINT = 'Join by a name that nobody else has.';
        END IF;
    END IF;
    -- One poll of a group at a time assigns; the others say that they are alive.
    PERFORM FROM projections.subscription_groups AS g WHERE g.group_id = _group FOR NO KEY UPDATE SKIP LOCKED;
    IF FOUND THEN
        DELETE FROM projections.workers AS r WHERE r.ctid = ANY (ARRAY(
            SELECT d.ctid FROM projections.workers AS d WHERE d.group_id = _group AND d.lease_until <= _now FOR UPDATE SKIP LOCKED
        ));
        PERFORM projections._assign_group_v1(_group);
        UPDATE projections.group_ranges AS r SET owner = p_owner, epoch = r.epoch + 1
        WHERE r.ctid = ANY (ARRAY(
            SELECT f.ctid FROM projections.group_ranges AS f
            WHERE f.group_id = _group AND f.assigned_to = p_owner AND f.owner IS DISTINCT FROM p_owner AND NOT EXISTS (
                SELECT FROM projections.workers AS o WHERE o.group_id = _group AND o.owner = f.owner
            )
            FOR UPDATE SKIP LOCKED
        ));
    END IF;

    RETURN QUERY
    SELECT
        r.min_slice, r.max_slice, r.epoch, r.cursor, r.assigned_to IS NOT DISTINCT FROM p_owner,
        r.handler_id, CASE WHEN r.handler_id IS NULL THEN ARRAY(
            SELECT o.handler_id FROM projections.group_ranges AS o
            WHERE o.group_id = _group AND o.min_slice = r.min_slice AND o.handler_id IS NOT NULL ORDER BY o.handler_id
        ) END
    FROM projections.group_ranges AS r WHERE r.group_id = _group AND r.owner = p_owner ORDER BY r.min_slice, r.handler_id;
END;
$$;
