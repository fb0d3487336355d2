-- Who still needs rows of a time, and which: a partition is held by each whose time it has a part of.
-- A projection needs all from its horizon on, or from an import on that it has not read; the horizon is where it stands
-- when nothing of it runs, too. Rows that are deleted from projections.projections and subscription_groups hold nothing.
CREATE OR REPLACE FUNCTION projections.retention_holders_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'events', 'projection', p.name, r.since, 'infinity'::timestamptz, format(
        CASE WHEN r.imported THEN 'has not read an import from %s' ELSE 'stands at %s' END, date_trunc('second', r.since)
    )
    FROM projections.projections AS p
    CROSS JOIN LATERAL (
        SELECT coalesce(min(least(r.horizon, i.since)), '-infinity') AS since, coalesce(min(i.since) < min(r.horizon), FALSE) AS imported
        FROM projections.projection_ranges AS r
        LEFT JOIN LATERAL (
            SELECT min(i.from_timestamp) AS since FROM projections.imports AS i
            WHERE i.entity_type = p.entity_type AND i.import_id > r.import_id
        ) AS i ON TRUE
        WHERE r.projection_id = p.projection_id
    ) AS r
    UNION ALL
    -- It folds and verifies from the first event on; swapped in, the projection goes on from its fence.
    SELECT 'events', 'rebuild', p.name, '-infinity', 'infinity', format('is being rebuilt (rebuild %s, %s)', b.rebuild_id, b.state)
    FROM projections.rebuilds AS b
    INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
    WHERE b.state IN ('folding', 'verified')
    UNION ALL
    -- A source waits at an event, and all its later ones behind that.
    SELECT 'events', 'parked', p.name, min(k.since), max(k.until), format('has %s parked sources', count(*))
    FROM projections.projections AS p
    INNER JOIN (
        SELECT k.projection_id, s.db_timestamp AS until, coalesce((
            SELECT min(e.db_timestamp) FROM projections.events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr
            AND e.db_timestamp BETWEEN coalesce(o.db_timestamp, '-infinity') AND k.parked_at
        ), o.db_timestamp, '-infinity') AS since
        FROM projections.parked_sources AS k
        INNER JOIN projections.sources AS s ON k.source_id = s.source_id
        LEFT JOIN projections.source_offsets AS o ON k.projection_id = o.projection_id AND k.source_id = o.source_id
    ) AS k ON p.projection_id = k.projection_id
    GROUP BY p.projection_id
    UNION ALL
    SELECT 'events', 'directed', '', min(d.db_timestamp), max(d.db_timestamp), format('%s directed and scheduled events wait', count(*))
    FROM projections.directed_events AS d
    GROUP BY date_trunc('day', d.db_timestamp)
    UNION ALL
    SELECT t.table_name, 'group', g.name, t.since, t.until, format('has %s matches to read', u.unread)
    FROM projections.subscription_groups AS g
    CROSS JOIN LATERAL (
        -- By slice, from 1: so that all ranges are read in one pass.
        SELECT min(r.cursor) AS first, array_agg(r.cursor ORDER BY s.slice) AS cursors
        FROM projections.group_ranges AS r
        CROSS JOIN LATERAL generate_series(r.min_slice::integer, r.max_slice::integer) AS s (slice)
        WHERE r.group_id = g.group_id
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
    -- What matches is a projection of each entity type; until somebody runs it, no event of that type has been looked at.
    SELECT 'events', 'group', g.name, min(s.since), 'infinity', format(
        'waits for the matching of %s to begin', string_agg(DISTINCT quote_literal(t.entity_type), ', ')
    )
    FROM projections.entity_types_v1() AS t (entity_type)
    INNER JOIN projections.subscriptions AS s ON s.entity_types IS NULL OR t.entity_type = ANY (s.entity_types)
    INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
    WHERE g.reliable
    AND NOT EXISTS (SELECT FROM projections.projections AS p WHERE p.name = 'matching/' || t.entity_type)
    GROUP BY g.group_id;
END;
$$;
