-- Which times of events, and of what matched, are still needed for subscriptions: those of events that wait to be matched, and
-- what reliable groups have not read. Rows that are deleted from subscription_groups hold nothing.
CREATE OR REPLACE FUNCTION projections._hook_holders_subscriptions_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
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
    SELECT g.table_name, 'group', g.holder, g.since, g.until, g.reason FROM projections._group_holders_v1() AS g;
END;
$$;
