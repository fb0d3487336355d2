-- How far groups, or one of them, are behind: for each range the number of its matches that are not read, how many events
-- that may be for it are still to be matched (which of them are, nobody knows), and the age of the oldest of both. It is that of
-- the event; only what was published counts from when it matched, for it may have been for later.
--
-- catching_up is how many subscriptions of the group catch up with the past. What they have not had of the past that they ask for counts
-- in the lag of all ranges, and is not counted otherwise: it may be the whole journal.
--
-- A range is read (a reader that is alive holds it), unread (nobody does, and matches wait), idle (nobody does, and none
-- waits) or listening (of a group that keeps no cursor: it is never behind). head is the number up to which matches can be
-- read, NULL where a transaction keeps its snapshot. retries and dead are those of the whole group, on each of its rows.
--
-- A handler that has a range of its own has a row for it, after all others, with its name: backlog and lag are of what is kept
-- for it.
CREATE OR REPLACE FUNCTION projections.group_lag_v1(p_group text DEFAULT NULL)
RETURNS TABLE (
    group_id integer,
    name text,
    reliable boolean,
    min_slice smallint,
    max_slice smallint,
    cursor bigint,
    head bigint,
    backlog bigint,
    lag interval,
    oldest_unread timestamptz,
    owner text,
    alive boolean,
    epoch bigint,
    moved_at timestamptz,
    state text,
    retries bigint,
    dead bigint,
    unmatched bigint,
    handler text,
    catching_up bigint
)
LANGUAGE plpgsql
-- All statements see the same snapshot: the caller's.
STABLE
SET search_path = pg_catalog, pg_temp
-- Along the index and into a hash table, whatever the statistics say: they lag behind what matches.
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    _head bigint;
    _group record;
    _cursors bigint[];  -- by slice, from 1
    -- What is still to be matched.
    _types text[];
    _slices integer[];
    _oldest timestamptz[];
    _events bigint[];
    _past timestamptz;
BEGIN
    IF current_setting('transaction_isolation') IN ('read committed', 'read uncommitted') THEN
        _head := projections.settled_matches_v1();
    END IF;
    SELECT array_agg(u.entity_type), array_agg(u.slice), array_agg(u.oldest), array_agg(u.events)
    INTO _types, _slices, _oldest, _events FROM projections._unmatched_events_v1() AS u;
    FOR _group IN
        SELECT
            g.group_id, g.name, g.reliable, min(r.cursor) AS lowest, count(*) AS ranges,
            (SELECT count(*) FROM projections.group_retries AS t WHERE t.group_id = g.group_id AND t.due_at IS NOT NULL) AS retries,
            (SELECT count(*) FROM projections.group_retries AS t WHERE t.group_id = g.group_id AND t.due_at IS NULL) AS dead,
            (
                SELECT count(*) FROM projections.subscriptions AS s WHERE s.group_id = g.group_id AND s.starts_at IS NOT NULL
            ) AS catching_up
        FROM projections.subscription_groups AS g INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
        WHERE r.handler_id IS NULL AND (p_group IS NULL OR g.name = p_group)
        GROUP BY g.group_id ORDER BY g.name
    LOOP
        SELECT array_agg(r.cursor ORDER BY s.slice) INTO _cursors
        FROM projections.group_ranges AS r
        CROSS JOIN LATERAL generate_series(r.min_slice::integer, r.max_slice::integer) AS s (slice)
        WHERE r.group_id = _group.group_id AND r.handler_id IS NULL;
        _past := NULL;
        IF _group.catching_up > 0 THEN
            -- Of subscriptions to the same entity types the one that is least far has the oldest.
            SELECT min(k.db_timestamp) INTO _past
            FROM (
                SELECT DISTINCT ON (s.entity_types)
                    s.entity_types, coalesce(h.db_timestamp, s.starts_at) AS db_timestamp, coalesce(h.slice, 0) AS slice,
                    coalesce(h.source_id, '') AS source_id, coalesce(h.seq_nr, 0) AS seq_nr
                FROM projections.subscriptions AS s
                LEFT JOIN projections.subscription_history AS h ON s.subscription_id = h.subscription_id
                WHERE s.group_id = _group.group_id AND s.starts_at IS NOT NULL
                ORDER BY s.entity_types, 2, 3, 4, 5
            ) AS a
            CROSS JOIN LATERAL projections._read_keys_by_slices_v1(
                a.entity_types, 0, 1023, a.db_timestamp, a.slice, a.source_id, a.seq_nr, '9999-01-01T00:00:00Z', 1
            ) AS k;
        END IF;

        RETURN QUERY
        WITH unread AS MATERIALIZED (
            -- Of a group with one range the slices do not matter: the index alone answers.
            SELECT 0 AS slice, count(*) AS backlog, min(m.match_id) AS first
            FROM projections.matches AS m
            WHERE _group.reliable AND _group.ranges = 1
            AND m.group_id = _group.group_id AND m.match_id > _group.lowest
            UNION ALL
            SELECT m.slice, count(*), min(m.match_id)
            FROM projections.matches AS m
            WHERE _group.reliable AND _group.ranges > 1
            AND m.group_id = _group.group_id AND m.match_id > _group.lowest AND m.match_id > _cursors[m.slice + 1]
            GROUP BY m.slice
        ), unmatched AS MATERIALIZED (
            -- An event from before a subscription is not for it.
            SELECT u.slice, sum(u.events) AS events, min(greatest(u.oldest, t.since)) AS oldest
            FROM unnest(_types, _slices, _oldest, _events) AS u (entity_type, slice, oldest, events)
            INNER JOIN LATERAL (
                SELECT min(s.since) AS since FROM projections.subscriptions AS s
                WHERE s.group_id = _group.group_id AND s.since < 'infinity' AND (s.entity_types IS NULL OR u.entity_type = ANY (s.entity_types))
            ) AS t ON t.since IS NOT NULL
            WHERE _group.reliable
            GROUP BY u.slice
        ), ranges AS (
            SELECT
                r.*, u.backlog, u.first,
                EXISTS (
                    SELECT FROM projections.workers AS o
                    WHERE o.group_id = r.group_id AND o.owner = r.owner AND o.lease_until > clock_timestamp()
                ) AS alive,
                (
                    SELECT coalesce(sum(w.events), 0)::bigint FROM unmatched AS w WHERE w.slice BETWEEN r.min_slice AND r.max_slice
                ) AS unmatched,
                (SELECT min(w.oldest) FROM unmatched AS w WHERE w.slice BETWEEN r.min_slice AND r.max_slice) AS oldest_unmatched
            FROM projections.group_ranges AS r
            CROSS JOIN LATERAL (
                SELECT coalesce(sum(u.backlog), 0)::bigint AS backlog, min(u.first) AS first
                FROM unread AS u WHERE u.slice BETWEEN r.min_slice AND r.max_slice
            ) AS u
            WHERE r.group_id = _group.group_id AND r.handler_id IS NULL
        ), aged AS (
            SELECT r.*, least(r.oldest_unmatched, _past, (
                SELECT CASE WHEN starts_with(m.source_id, 'publisher/') THEN m.matched_at ELSE m.db_timestamp END
                FROM projections.matches AS m WHERE m.group_id = r.group_id AND m.match_id = r.first
                LIMIT 1
            )) AS oldest
            FROM ranges AS r
        )
        SELECT
            r.group_id, _group.name, _group.reliable, r.min_slice, r.max_slice, r.cursor, _head, r.backlog,
            greatest(clock_timestamp() - r.oldest, interval '0'), r.oldest, r.owner, r.alive, r.epoch, r.moved_at,
            CASE
                WHEN NOT _group.reliable THEN 'listening'
                WHEN r.alive THEN 'read'
                WHEN r.backlog > 0 THEN 'unread'
                ELSE 'idle'
            END,
            _group.retries, _group.dead, r.unmatched, NULL::text, _group.catching_up
        FROM aged AS r ORDER BY r.min_slice;

        RETURN QUERY
        SELECT
            r.group_id, _group.name, _group.reliable, r.min_slice, r.max_slice, r.cursor, _head, u.backlog,
            greatest(clock_timestamp() - u.oldest, interval '0'), u.oldest, r.owner, a.alive, r.epoch, r.moved_at,
            CASE WHEN a.alive THEN 'read' WHEN u.backlog > 0 THEN 'unread' ELSE 'idle' END,
            _group.retries, _group.dead, 0::bigint, h.name, _group.catching_up
        FROM projections.group_ranges AS r
        INNER JOIN projections.group_handlers AS h ON r.handler_id = h.handler_id
        CROSS JOIN LATERAL (
            SELECT count(*) AS backlog, min(
                CASE WHEN starts_with(m.source_id, 'publisher/') THEN m.matched_at ELSE m.db_timestamp END
            ) AS oldest
            FROM projections.matches AS m
            WHERE m.group_id = r.group_id AND m.match_id > r.cursor AND m.slice BETWEEN r.min_slice AND r.max_slice
            AND h.subscription_id = ANY (m.subscription_ids)
        ) AS u
        CROSS JOIN LATERAL (
            SELECT EXISTS (
                SELECT FROM projections.workers AS o
                WHERE o.group_id = r.group_id AND o.owner = r.owner AND o.lease_until > clock_timestamp()
            ) AS alive
        ) AS a
        WHERE r.group_id = _group.group_id
        ORDER BY h.name, r.min_slice, h.handler_id;
    END LOOP;
END;
$$;
