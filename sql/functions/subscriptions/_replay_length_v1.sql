-- How many matches a subscription has between two numbers, counted up to p_limit, for one who has seen all up to the first.
-- NULL where he cannot go on from there: there is no such subscription in the group, the number was never given, or what
-- came after it has been dropped, the matches or the events.
CREATE OR REPLACE FUNCTION projections._replay_length_v1(
    p_group text, p_subscription_id bigint, p_after bigint, p_until bigint, p_limit integer
)
RETURNS bigint
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _group integer;
    _count bigint;
    _first bigint;
BEGIN
    SELECT g.group_id INTO _group
    FROM projections.subscription_groups AS g
    INNER JOIN projections.subscriptions AS s ON g.group_id = s.group_id
    CROSS JOIN projections.match_ids AS i
    WHERE g.name = p_group AND s.subscription_id = p_subscription_id
    AND p_after >= g.dropped_until AND p_after <= CASE WHEN i.is_called THEN i.last_value ELSE 0 END;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    SELECT count(*), min(m.match_id) INTO _count, _first
    FROM (
        SELECT m.match_id FROM projections.matches AS m
        WHERE m.group_id = _group AND m.match_id > p_after AND m.match_id <= p_until
        AND m.subscription_ids @> ARRAY[p_subscription_id]
        ORDER BY m.group_id, m.match_id
        LIMIT p_limit
    ) AS m;
    -- Events leave the oldest first.
    IF _count > 0 AND NOT EXISTS (
        SELECT FROM projections.matches AS m
        INNER JOIN projections.events AS e
            ON m.source_id = e.source_id AND m.seq_nr = e.seq_nr AND m.db_timestamp = e.db_timestamp
        WHERE m.group_id = _group AND m.match_id = _first
    ) THEN
        RETURN NULL;
    END IF;
    RETURN _count;
END;
$$;
