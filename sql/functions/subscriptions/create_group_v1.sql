-- Makes a group known, its slices cut into ranges that begin at the given ones; a known one is returned as it is. A new
-- reliable group begins with what matches from now on.
--
-- p_start is for its subscriptions that have none of their own, as subscribe_v1 takes it; NULL is infinity for a new group, and says
-- nothing of a known one. Raises PJ081 where it is another than that of a known group, or is refused.
CREATE OR REPLACE FUNCTION projections.create_group_v1(
    p_name text, p_reliable boolean DEFAULT TRUE, p_min_slices integer[] DEFAULT '{0}', p_start timestamptz DEFAULT NULL
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _start CONSTANT timestamptz := CASE WHEN p_start IS NOT NULL THEN greatest(p_start, '1970-01-01T00:00:00Z') END;
    _id integer;
    _starts_at timestamptz;
BEGIN
    PERFORM projections._cut_v1(p_min_slices);
    SELECT g.group_id, g.starts_at INTO _id, _starts_at FROM projections.subscription_groups AS g WHERE g.name = p_name;
    IF NOT FOUND THEN
        IF p_name IS NULL OR p_name = '' OR char_length(p_name) > 255 THEN
            RAISE EXCEPTION 'the name of a group has 1 to 255 characters, not %', coalesce(char_length(p_name)::text, 'NULL')
            USING ERRCODE = 'PJ081';
        END IF;
        IF _start < 'infinity' AND NOT p_reliable THEN
            RAISE EXCEPTION 'group % only listens: it gets what comes, and nothing of the past', quote_literal(p_name)
            USING ERRCODE = 'PJ081', HINT = 'Leave start out.';
        ELSIF _start < 'infinity' AND _start > clock_timestamp() THEN
            RAISE EXCEPTION 'start lies in the future: %', p_start
            USING ERRCODE = 'PJ081', HINT = 'Leave it out for what comes from now on.';
        END IF;
        INSERT INTO projections.subscription_groups (name, reliable, starts_at)
        VALUES (p_name, p_reliable, coalesce(_start, 'infinity'))
        ON CONFLICT (name) DO NOTHING RETURNING group_id INTO _id;
        IF FOUND THEN
            INSERT INTO projections.group_ranges (group_id, min_slice, max_slice)
            SELECT _id, w.min_slice, w.max_slice FROM projections._cut_v1(p_min_slices) AS w;
            RETURN _id;
        END IF;
        -- Somebody else has just made it.
        SELECT g.group_id, g.starts_at INTO _id, _starts_at FROM projections.subscription_groups AS g WHERE g.name = p_name;
    END IF;
    IF _start <> _starts_at THEN
        RAISE EXCEPTION 'group % is there, and its subscriptions start %, not %: to have it read again, call projections groups rewind; '
            'to start one subscription at another time, say so when it is made (subscribe --from)', quote_literal(p_name),
            CASE WHEN _starts_at = 'infinity' THEN 'from now on' ELSE 'at ' || _starts_at END,
            CASE WHEN _start = 'infinity' THEN 'from now on' ELSE 'at ' || _start END
        USING ERRCODE = 'PJ081';
    END IF;
    RETURN _id;
END;
$$;
