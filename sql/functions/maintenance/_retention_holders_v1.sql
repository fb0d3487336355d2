-- Who still needs rows of a time, and which: a partition is held by each whose time it has a part of.
-- A projection needs all from its horizon on, or from an import on that it has not read; the horizon is where it stands
-- when nothing of it runs, too. Rows that are deleted from projections.projections and subscription_groups hold nothing.
CREATE OR REPLACE FUNCTION projections._retention_holders_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
    -- What retention lets go of the log of webhooks, or soon will: older deliveries are few, whatever is delivered every day.
    _deliveries_before timestamptz := (
        SELECT clock_timestamp() - s.retention + interval '1 hour' FROM projections.partition_settings AS s
        WHERE s.table_name = 'webhook_events'
    );
BEGIN
    RETURN QUERY
    SELECT 'events', p.kind, p.holder, p.since, p.until, p.reason FROM projections._projection_holders_v1() AS p
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
    WHERE p.journal IS NULL
    GROUP BY p.projection_id
    UNION ALL
    SELECT 'events', 'directed', '', min(d.db_timestamp), max(d.db_timestamp), format('%s directed and scheduled events wait', count(*))
    FROM projections.directed_events AS d
    GROUP BY date_trunc('day', d.db_timestamp)
    UNION ALL
    -- What conditions are still to be asked, for the subscriptions of a reliable group: from the place of the one that is
    -- furthest behind.
    SELECT 'events', 'unasked', '', min(u.since), max(u.until), format(
        'events wait for %s of subscriptions, stopped or catching up', c.names
    )
    FROM (
        SELECT min(c.unasked_from) AS unasked_from, concat_ws(
            ' ', CASE WHEN count(*) = 1 THEN 'condition' ELSE 'conditions' END,
            string_agg(c.condition_id::text, ', ' ORDER BY c.condition_id)
        ) AS names
        FROM projections.conditions AS c
        WHERE c.condition_id IN (SELECT projections._conditions_apart_v1()) AND c.unasked_from IS NOT NULL AND EXISTS (
            SELECT FROM projections.subscriptions AS s INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
            WHERE s.condition_id = c.condition_id AND g.reliable
        )
    ) AS c
    INNER JOIN projections.unasked AS u ON u.page_id >= c.unasked_from
    GROUP BY c.names
    UNION ALL
    -- What a condition has failed on, for the same; not counted, for it may be much.
    SELECT 'events', 'unanswered', '', u.since, u.until, format('events wait for condition %s of subscriptions', c.condition_id)
    FROM projections.conditions AS c
    CROSS JOIN LATERAL (
        SELECT min(u.db_timestamp) AS since, max(u.db_timestamp) AS until
        FROM projections.unanswered AS u WHERE u.condition_id = c.condition_id
    ) AS u
    WHERE u.since IS NOT NULL AND EXISTS (
        SELECT FROM projections.subscriptions AS s INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id
        WHERE s.condition_id = c.condition_id AND g.reliable
    )
    UNION ALL
    -- Its payload is there alone until a delivery is finished. Dead letters have a copy; who fans out reads the journal.
    SELECT 'webhook_events', 'delivery', '', min(d.event_time), max(d.event_time), format('%s deliveries are not finished', count(*))
    FROM projections.webhook_deliveries AS d
    WHERE d.event_time < _deliveries_before AND d.state IN ('waiting', 'pending', 'leased')
    GROUP BY date_trunc('day', d.event_time)
    UNION ALL
    SELECT g.table_name, 'group', g.holder, g.since, g.until, g.reason FROM projections._group_holders_v1() AS g;
END;
$$;
