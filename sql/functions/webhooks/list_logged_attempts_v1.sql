-- Attempts of the delivery log by time and id, as list_logged_events_v1 lists events. Attempts that are named are looked up.
-- Of several events, endpoints or tenants each is walked by itself, and no further than the page is long.
-- The condition on tenants is kept from the planner beside one on endpoints, as there: see its remark.
CREATE OR REPLACE FUNCTION projections.list_logged_attempts_v1(
    p_tenants text[] DEFAULT NULL, p_event_ids text[] DEFAULT NULL, p_endpoint_ids text[] DEFAULT NULL,
    p_topics text[] DEFAULT NULL, p_gte timestamptz DEFAULT NULL, p_lte timestamptz DEFAULT NULL,
    p_gt timestamptz DEFAULT NULL, p_lt timestamptz DEFAULT NULL, p_ascending boolean DEFAULT FALSE,
    p_time timestamptz DEFAULT NULL, p_id text DEFAULT NULL, p_inclusive boolean DEFAULT FALSE, p_limit integer DEFAULT 100,
    p_endpoint_types text[] DEFAULT NULL, p_status text DEFAULT NULL, p_attempt_ids text[] DEFAULT NULL
)
RETURNS TABLE (
    attempt_id text, tenant text, event_id text, event_time timestamptz, topic text, endpoint_id text, endpoint_type text,
    attempt_number integer, manual boolean, status text, attempted_at timestamptz, code text, response text, took interval
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET datestyle = 'ISO'
AS $$
DECLARE
    _order CONSTANT text := format('r.attempted_at %1$s, r.attempt_id %1$s', CASE WHEN p_ascending THEN 'ASC' ELSE 'DESC' END);
    _walk CONSTANT text := projections.log_walk_v1(
        'r.attempted_at', 'r.attempt_id', p_gte, p_lte, p_gt, p_lt, p_ascending, p_time, p_id, p_inclusive
    );
    _column CONSTANT text := CASE
        WHEN cardinality(p_event_ids) > 1 THEN 'event_id'
        WHEN cardinality(p_endpoint_ids) > 1 AND p_event_ids IS NULL THEN 'endpoint_id'
        WHEN cardinality(p_tenants) > 1 AND coalesce(p_event_ids, p_endpoint_ids, p_topics) IS NULL THEN 'tenant'
    END;
    _others CONSTANT text := concat_ws(
        ' AND ',
        projections.log_any_of_v1('r.event_id', p_event_ids), projections.log_any_of_v1('r.endpoint_id', p_endpoint_ids),
        projections.log_any_of_v1('r.endpoint_type', p_endpoint_types), projections.log_any_of_v1('r.topic', p_topics),
        projections.log_any_of_v1('r.status', CASE WHEN p_status IS NOT NULL THEN ARRAY[p_status] END)
    );
    _tenants CONSTANT text := projections.log_any_of_v1('r.tenant', p_tenants);
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT r.attempt_id, r.tenant, r.event_id, r.event_time, r.topic, r.endpoint_id, r.endpoint_type, '
        'r.attempt_number, r.manual, r.status, r.attempted_at, r.code, r.response, r.took '
        'FROM %s AS r WHERE %s ORDER BY %s LIMIT %s',
        CASE
            WHEN p_attempt_ids IS NOT NULL THEN format(
                '(SELECT w.* FROM (SELECT DISTINCT unnest(%L::text[])) AS n (id) CROSS JOIN LATERAL ('
                'SELECT i.row_time FROM projections.webhook_log_ids AS i WHERE i.id = n.id AND i.kind = ''attempt'' LIMIT 1) AS i '
                'CROSS JOIN LATERAL (SELECT w.* FROM projections.webhook_attempts AS w '
                'WHERE w.attempted_at = i.row_time AND w.attempt_id = n.id LIMIT 1) AS w)', p_attempt_ids
            )
            WHEN _column IS NOT NULL THEN projections.log_each_v1(
                'webhook_attempts', _column,
                CASE _column WHEN 'event_id' THEN p_event_ids WHEN 'endpoint_id' THEN p_endpoint_ids ELSE p_tenants END,
                concat_ws(' AND ', _tenants, nullif(_others, '')), _walk, _order, p_limit
            )
            ELSE 'projections.webhook_attempts'
        END,
        CASE
            WHEN p_attempt_ids IS NULL AND _column IS NOT NULL THEN 'TRUE'
            ELSE concat_ws(
                ' AND ',
                coalesce(CASE WHEN p_endpoint_ids IS NULL THEN _tenants ELSE 'coalesce(' || _tenants || ', FALSE)' END, 'TRUE'),
                nullif(_others, ''), _walk
            )
        END,
        _order, p_limit
    );
END;
$$;
