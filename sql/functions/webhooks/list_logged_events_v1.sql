-- Events of the delivery log by time and id, from a place on, or without one from the end of the list. Of each filter any
-- value may match, and all filters must; NULL lets all.
-- The statement is made of the filters that there are and planned with their values: each has the index that fits it, and
-- partitions of other times are not looked at. Events that are named are looked up, and nothing is walked. An endpoint has
-- one tenant: were both conditions known to the planner, it would expect few rows, and so take all of a busy endpoint and
-- sort them. With coalesce it walks in the order of time.
CREATE OR REPLACE FUNCTION projections.list_logged_events_v1(
    p_tenants text[] DEFAULT NULL, p_event_ids text[] DEFAULT NULL, p_endpoint_ids text[] DEFAULT NULL,
    p_topics text[] DEFAULT NULL, p_gte timestamptz DEFAULT NULL, p_lte timestamptz DEFAULT NULL,
    p_gt timestamptz DEFAULT NULL, p_lt timestamptz DEFAULT NULL, p_ascending boolean DEFAULT FALSE,
    p_time timestamptz DEFAULT NULL, p_id text DEFAULT NULL, p_inclusive boolean DEFAULT FALSE, p_limit integer DEFAULT 100
)
RETURNS TABLE (
    event_id text, tenant text, topic text, event_time timestamptz, endpoint_ids text[], eligible_for_retry boolean,
    metadata text, data text
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET datestyle = 'ISO'
AS $$
DECLARE
    _named CONSTANT text := format(
        '(SELECT w.* FROM (SELECT DISTINCT unnest(%L::text[])) AS n (id) CROSS JOIN LATERAL ('
        'SELECT i.row_time FROM projections.webhook_log_ids AS i WHERE i.id = n.id AND i.kind = ''event'' LIMIT 1) AS i '
        'CROSS JOIN LATERAL (SELECT w.* FROM projections.webhook_events AS w '
        'WHERE w.event_time = i.row_time AND w.event_id = n.id LIMIT 1) AS w)', p_event_ids
    );
    _walk CONSTANT text := projections.log_walk_v1(
        'r.event_time', 'r.event_id', p_gte, p_lte, p_gt, p_lt, p_ascending, p_time, p_id, p_inclusive
    );
    _order CONSTANT text := format('r.event_time %1$s, r.event_id %1$s', CASE WHEN p_ascending THEN 'ASC' ELSE 'DESC' END);
    _by_tenant CONSTANT boolean := cardinality(p_tenants) > 1 AND coalesce(p_event_ids, p_endpoint_ids, p_topics) IS NULL;
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT r.event_id, r.tenant, r.topic, r.event_time, r.endpoint_ids, r.eligible_for_retry, r.metadata::text, r.data '
        'FROM %s AS r WHERE %s ORDER BY %s LIMIT %s',
        CASE
            WHEN p_event_ids IS NOT NULL THEN _named
            WHEN _by_tenant THEN projections.log_each_v1('webhook_events', 'tenant', p_tenants, NULL, _walk, _order, p_limit)
            ELSE 'projections.webhook_events'
        END,
        CASE WHEN _by_tenant THEN 'TRUE' ELSE concat_ws(
            ' AND ',
            format(
                CASE WHEN p_endpoint_ids IS NULL THEN '%s' ELSE 'coalesce(%s, FALSE)' END,
                coalesce(projections.log_any_of_v1('r.tenant', p_tenants), 'TRUE')
            ),
            projections.log_any_of_v1('r.topic', p_topics),
            CASE WHEN p_endpoint_ids IS NOT NULL THEN format('r.endpoint_ids && %L::text[]', p_endpoint_ids) END,
            _walk
        ) END,
        _order, p_limit
    );
END;
$$;
