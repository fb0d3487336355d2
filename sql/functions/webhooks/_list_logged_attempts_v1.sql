-- Attempts of the delivery log by time and id, as _list_logged_events_v1 lists events. Attempts that are named are looked up.
-- Without p_response there is the length of an answer alone, which a page is cut by.
-- Of several events, endpoints, tenants or topics each is walked by itself. An event and an endpoint have one tenant: where a walk by
-- one comes to its end at a row of another tenant, that is the end of the list, and nobody learns of the row.
CREATE OR REPLACE FUNCTION projections._list_logged_attempts_v1(
    p_tenants text[] DEFAULT NULL, p_event_ids text[] DEFAULT NULL, p_endpoint_ids text[] DEFAULT NULL,
    p_topics text[] DEFAULT NULL, p_gte timestamptz DEFAULT NULL, p_lte timestamptz DEFAULT NULL,
    p_gt timestamptz DEFAULT NULL, p_lt timestamptz DEFAULT NULL, p_ascending boolean DEFAULT FALSE,
    p_time timestamptz DEFAULT NULL, p_id text DEFAULT NULL, p_inclusive boolean DEFAULT FALSE, p_limit integer DEFAULT 100,
    p_endpoint_types text[] DEFAULT NULL, p_status text DEFAULT NULL, p_attempt_ids text[] DEFAULT NULL,
    p_looked integer DEFAULT 10000, p_response boolean DEFAULT TRUE
)
RETURNS TABLE (
    attempt_id text, tenant text, event_id text, event_time timestamptz, topic text, endpoint_id text, endpoint_type text,
    attempt_number integer, manual boolean, status text, attempted_at timestamptz, code text, response text,
    response_bytes integer, took interval, wanted boolean, is_last boolean
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET datestyle = 'ISO'
AS $$
DECLARE
    _columns CONSTANT text := 'r.attempt_id, r.tenant, r.event_id, r.event_time, r.topic, r.endpoint_id, r.endpoint_type, '
        'r.attempt_number, r.manual, r.status, r.attempted_at, r.code, '
        || CASE WHEN p_response THEN 'r.response' ELSE 'NULL::text' END
        || ', coalesce(octet_length(r.response), 0), r.took';
    _order CONSTANT text := format('r.attempted_at %1$s, r.attempt_id %1$s', CASE WHEN p_ascending THEN 'ASC' ELSE 'DESC' END);
    _walk CONSTANT text := projections._log_walk_v1(
        'r.attempted_at', 'r.attempt_id', p_gte, p_lte, p_gt, p_lt, p_ascending, p_time, p_id, p_inclusive
    );
    _tenants CONSTANT text := projections._log_any_of_v1('r.tenant', p_tenants);
    _filter CONSTANT text := concat_ws(
        ' AND ',
        projections._log_any_of_v1('r.event_id', p_event_ids), projections._log_any_of_v1('r.endpoint_id', p_endpoint_ids),
        projections._log_any_of_v1('r.endpoint_type', p_endpoint_types), projections._log_any_of_v1('r.topic', p_topics),
        projections._log_any_of_v1('r.status', CASE WHEN p_status IS NOT NULL THEN ARRAY[p_status] END)
    );
    _values CONSTANT text[] := coalesce(p_event_ids, p_endpoint_ids);
    _keys text;
    _number integer;
    _key text;
BEGIN
    IF p_attempt_ids IS NULL AND _values IS NOT NULL THEN
        _keys := format('SELECT DISTINCT unnest(%L::text[]) AS a', _values);
        _number := cardinality(_values);
        _key := CASE WHEN p_event_ids IS NULL THEN 'r.endpoint_id = v.a' ELSE 'r.event_id = v.a' END;
    ELSE
        -- What failed has indexes of its own, which have no topic.
        SELECT k.keys, k.number, concat_ws(' AND ', k.condition, CASE WHEN p_status = 'failed' THEN 'r.status = ''failed''' END)
        INTO _keys, _number, _key
        FROM projections._log_key_v1(
            'attempt', p_attempt_ids, p_tenants, CASE WHEN p_status IS DISTINCT FROM 'failed' THEN p_topics END
        ) AS k;
    END IF;
    RETURN QUERY EXECUTE projections._log_walked_v1(
        'webhook_attempts', _columns, _keys, _key, _tenants, _filter, _walk, _order, _number, p_looked, p_limit
    );
END;
$$;
