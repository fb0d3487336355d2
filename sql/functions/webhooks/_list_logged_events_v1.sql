-- Events of the delivery log by time and id, from a place on, or without one from the end of the list. Of each filter any
-- value may match, and all filters must; NULL lets all. At most p_looked rows are looked at: where that ends the page, its last row
-- says so (is_last), wanted or not, and the list goes on behind it.
-- The statement is made of the filters that there are and planned with their values: partitions of other times are not looked at.
-- A payload may be long: without p_data there is its length alone, which a page is cut by.
-- Events that are named are looked up, and nothing is walked. So are those of endpoints that have no more than a page of them ahead.
CREATE OR REPLACE FUNCTION projections._list_logged_events_v1(
    p_tenants text[] DEFAULT NULL, p_event_ids text[] DEFAULT NULL, p_endpoint_ids text[] DEFAULT NULL,
    p_topics text[] DEFAULT NULL, p_gte timestamptz DEFAULT NULL, p_lte timestamptz DEFAULT NULL,
    p_gt timestamptz DEFAULT NULL, p_lt timestamptz DEFAULT NULL, p_ascending boolean DEFAULT FALSE,
    p_time timestamptz DEFAULT NULL, p_id text DEFAULT NULL, p_inclusive boolean DEFAULT FALSE, p_limit integer DEFAULT 100,
    p_looked integer DEFAULT 10000, p_data boolean DEFAULT TRUE
)
RETURNS TABLE (
    event_id text, tenant text, topic text, event_time timestamptz, endpoint_ids text[], eligible_for_retry boolean,
    metadata text, data text, data_bytes integer, erased_at timestamptz, wanted boolean, is_last boolean
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET datestyle = 'ISO'
AS $$
DECLARE
    _columns CONSTANT text := 'r.event_id, r.tenant, r.topic, r.event_time, r.endpoint_ids, r.eligible_for_retry, '
        'r.metadata::text, ' || CASE WHEN p_data THEN 'r.data' ELSE 'NULL::text' END
        || ', coalesce(octet_length(r.data), 0), r.erased_at';
    _order CONSTANT text := format('r.event_time %1$s, r.event_id %1$s', CASE WHEN p_ascending THEN 'ASC' ELSE 'DESC' END);
    _walk CONSTANT text := projections._log_walk_v1(
        'r.event_time', 'r.event_id', p_gte, p_lte, p_gt, p_lt, p_ascending, p_time, p_id, p_inclusive
    );
    _tenants CONSTANT text := projections._log_any_of_v1('r.tenant', p_tenants);
    _filter CONSTANT text := concat_ws(
        ' AND ',
        projections._log_any_of_v1('r.topic', p_topics),
        CASE WHEN p_endpoint_ids IS NOT NULL THEN format('r.endpoint_ids && %L::text[]', p_endpoint_ids) END
    );
    _named CONSTANT text[] := CASE
        WHEN p_event_ids IS NULL AND p_endpoint_ids IS NOT NULL THEN projections._log_few_events_v1(p_endpoint_ids, _walk, p_limit)
        ELSE p_event_ids
    END;
BEGIN
    RETURN QUERY EXECUTE (
        SELECT projections._log_walked_v1(
            'webhook_events', _columns, k.keys, k.condition, _tenants, _filter, _walk, _order, k.number, p_looked, p_limit
        )
        FROM projections._log_key_v1('event', _named, p_tenants, p_topics) AS k
    );
END;
$$;
