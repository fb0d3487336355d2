-- Which times reliable groups still need, of events and of matches: from the oldest that they have not read to the newest.
CREATE OR REPLACE FUNCTION projections._group_holders_v1()
RETURNS TABLE (table_name text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT t.table_name, g.name, t.since, t.until, format('has %s matches to read', u.unread)
    FROM projections.subscription_groups AS g
    CROSS JOIN LATERAL (
        -- By slice, from 1: so that all ranges are read in one pass.
        SELECT min(r.cursor) AS first, array_agg(r.cursor ORDER BY s.slice) AS cursors
        FROM projections.group_ranges AS r
        CROSS JOIN LATERAL generate_series(r.min_slice::integer, r.max_slice::integer) AS s (slice)
        WHERE r.group_id = g.group_id AND r.handler_id IS NULL
    ) AS c
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS unread, min(m.db_timestamp) AS first_event, max(m.db_timestamp) AS last_event,
            min(m.matched_at) AS first_match, max(m.matched_at) AS last_match
        FROM projections.matches AS m
        WHERE m.group_id = g.group_id AND m.match_id > coalesce(c.first, 0) AND m.match_id > coalesce(c.cursors[m.slice + 1], 0)
    ) AS u
    CROSS JOIN LATERAL (
        VALUES ('events', u.first_event, u.last_event), ('matches', u.first_match, u.last_match)
    ) AS t (table_name, since, until)
    WHERE g.reliable AND u.unread > 0
    UNION ALL
    SELECT t.table_name, g.name, t.since, t.until, format('keeps %s matches for handler %L', u.unread, h.name)
    FROM projections.subscription_groups AS g
    INNER JOIN projections.group_ranges AS r ON g.group_id = r.group_id
    INNER JOIN projections.group_handlers AS h ON r.handler_id = h.handler_id
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS unread, min(m.db_timestamp) AS first_event, max(m.db_timestamp) AS last_event,
            min(m.matched_at) AS first_match, max(m.matched_at) AS last_match
        FROM projections.matches AS m
        WHERE m.group_id = r.group_id AND m.match_id > r.cursor AND m.slice BETWEEN r.min_slice AND r.max_slice
        AND h.subscription_id = ANY (m.subscription_ids)
    ) AS u
    CROSS JOIN LATERAL (
        VALUES ('events', u.first_event, u.last_event), ('matches', u.first_match, u.last_match)
    ) AS t (table_name, since, until)
    WHERE g.reliable AND u.unread > 0
    UNION ALL
    SELECT
        'events', g.name, min(coalesce(h.db_timestamp, s.starts_at)), 'infinity',
        format('has %s subscriptions that catch up with the past', count(*))
    FROM projections.subscriptions AS s
    INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
    LEFT JOIN LATERAL (
        SELECT h.db_timestamp FROM projections.subscription_history AS h WHERE h.subscription_id = s.subscription_id LIMIT 1
    ) AS h ON TRUE
    WHERE s.starts_at IS NOT NULL AND g.reliable
    GROUP BY g.group_id
    UNION ALL
    -- What matches is a projection; until somebody runs it, no event has been looked at.
    SELECT 'events', g.name, min(s.since), 'infinity', 'waits for matching to begin'
    FROM projections.subscriptions AS s
    INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
    WHERE g.reliable AND NOT EXISTS (SELECT FROM projections.projections AS p WHERE p.name = 'matching')
    GROUP BY g.group_id;
END;
$$;
