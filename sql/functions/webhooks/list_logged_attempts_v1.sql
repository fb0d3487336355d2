-- Attempts of the delivery log by time and id, as list_logged_events_v1 lists events. Attempts that are named are looked up.
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
SET datestyle = 'ISO'
AS $$
DECLARE
    _named CONSTANT text := format(
        '(SELECT w.* FROM (SELECT DISTINCT unnest(%L::text[])) AS n (id) CROSS JOIN LATERAL ('
        'SELECT i.row_time FROM projections.webhook_log_ids AS i WHERE i.id = n.id AND i.kind = ''attempt'' LIMIT 1) AS i '
        'CROSS JOIN LATERAL (SELECT w.* FROM projections.webhook_attempts AS w '
        'WHERE w.attempted_at = i.row_time AND w.attempt_id = n.id LIMIT 1) AS w)', p_attempt_ids
    );
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT a.attempt_id, a.tenant, a.event_id, a.event_time, a.topic, a.endpoint_id, a.endpoint_type, '
        'a.attempt_number, a.manual, a.status, a.attempted_at, a.code, a.response, a.took '
        'FROM %s AS a WHERE %s ORDER BY a.attempted_at %s, a.attempt_id %3$s LIMIT %4$s',
        CASE WHEN p_attempt_ids IS NULL THEN 'projections.webhook_attempts' ELSE _named END,
        concat_ws(
            ' AND ',
            format(
                CASE WHEN p_endpoint_ids IS NULL THEN '%s' ELSE 'coalesce(%s, FALSE)' END,
                coalesce(projections.log_any_of_v1('a.tenant', p_tenants), 'TRUE')
            ),
            projections.log_any_of_v1('a.event_id', p_event_ids),
            projections.log_any_of_v1('a.endpoint_id', p_endpoint_ids),
            projections.log_any_of_v1('a.endpoint_type', p_endpoint_types),
            projections.log_any_of_v1('a.topic', p_topics),
            projections.log_any_of_v1('a.status', CASE WHEN p_status IS NOT NULL THEN ARRAY[p_status] END),
            projections.log_walk_v1(
                'a.attempted_at', 'a.attempt_id', p_gte, p_lte, p_gt, p_lt, p_ascending, p_time, p_id, p_inclusive
            )
        ),
        CASE WHEN p_ascending THEN 'ASC' ELSE 'DESC' END, p_limit
    );
END;
$$;
