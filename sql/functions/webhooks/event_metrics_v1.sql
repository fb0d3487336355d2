-- Counts events of the delivery log from one time up to another, by span of time (log_bucket_v1) and by dimensions: tenant,
-- topic and endpoint_id, which an event counts for each of. Filters are a JSON object of arrays by dimension.
-- At most so many rows; what is nought is left out. PJ096: there is no such dimension.
CREATE OR REPLACE FUNCTION projections.event_metrics_v1(
    p_start timestamptz, p_end timestamptz, p_interval interval DEFAULT NULL, p_origin timestamptz DEFAULT '1970-01-01Z',
    p_dimensions text[] DEFAULT '{}', p_tenants text[] DEFAULT NULL, p_filters jsonb DEFAULT '{}', p_limit integer DEFAULT 100001
)
RETURNS TABLE (bucket timestamptz, dimensions text[], total bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    _endpoints CONSTANT text[] := ARRAY(SELECT jsonb_array_elements_text(p_filters -> 'endpoint_id'));
    _values text;
BEGIN
    PERFORM projections.log_dimensions_v1(p_dimensions || ARRAY(SELECT jsonb_object_keys(p_filters)), '{tenant,topic,endpoint_id}');
    SELECT string_agg(CASE d.name WHEN 'endpoint_id' THEN 'd.endpoint_id' ELSE 'e.' || d.name END, ', ' ORDER BY d.place) INTO _values
    FROM unnest(p_dimensions) WITH ORDINALITY AS d (name, place);
    RETURN QUERY EXECUTE format(
        'SELECT %s AS bucket, ARRAY[%s]::text[] AS dimensions, count(*) FROM projections.webhook_events AS e%s WHERE %s GROUP BY 1, 2 LIMIT %s',
        projections.log_bucket_v1('e.event_time', p_interval, p_origin),
        _values,
        CASE WHEN 'endpoint_id' = ANY (p_dimensions) THEN ' CROSS JOIN LATERAL (SELECT DISTINCT u.* FROM unnest(e.endpoint_ids) AS u) AS d (endpoint_id)' END,
        concat_ws(
            ' AND ', format('e.event_time >= %L::timestamptz AND e.event_time < %L::timestamptz', p_start, p_end),
            projections.log_any_of_v1('e.tenant', p_tenants),
            projections.log_filters_v1('e', p_filters - 'endpoint_id'),
            CASE WHEN p_filters ? 'endpoint_id' THEN format('e.endpoint_ids && %L::text[]', _endpoints) END,
            CASE WHEN p_filters ? 'endpoint_id' AND 'endpoint_id' = ANY (p_dimensions) THEN projections.log_any_of_v1('d.endpoint_id', _endpoints) END
        ),
        p_limit
    );
END;
$$;
