-- Counts attempts of the delivery log as event_metrics_v1 counts events; the dimensions are also endpoint_type, status, code,
-- manual and attempt_number. An attempt without a code has an empty one here.
-- PJ096: there is no such dimension.
CREATE OR REPLACE FUNCTION projections.attempt_metrics_v1(
    p_start timestamptz, p_end timestamptz, p_interval interval DEFAULT NULL, p_origin timestamptz DEFAULT '1970-01-01Z',
    p_dimensions text[] DEFAULT '{}', p_tenants text[] DEFAULT NULL, p_filters jsonb DEFAULT '{}', p_limit integer DEFAULT 100001
)
RETURNS TABLE (
    bucket timestamptz, dimensions text[], total bigint, successful bigint, first bigint, retries bigint, manual bigint,
    numbers bigint
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    _values text;
BEGIN
    PERFORM projections.log_dimensions_v1(
        p_dimensions || ARRAY(SELECT jsonb_object_keys(p_filters)),
        '{tenant,topic,endpoint_id,endpoint_type,status,code,manual,attempt_number}'
    );
    SELECT string_agg(format('coalesce(a.%I::text, '''')', d.name), ', ' ORDER BY d.place) INTO _values
    FROM unnest(p_dimensions) WITH ORDINALITY AS d (name, place);
    RETURN QUERY EXECUTE format(
        'SELECT %s AS bucket, ARRAY[%s]::text[] AS dimensions, count(*), count(*) FILTER (WHERE a.status = ''success''), '
        'count(*) FILTER (WHERE a.attempt_number = 1 AND NOT a.manual), count(*) FILTER (WHERE a.attempt_number > 1), '
        'count(*) FILTER (WHERE a.manual), sum(a.attempt_number) '
        'FROM projections.webhook_attempts AS a WHERE %s GROUP BY 1, 2 LIMIT %s',
        projections.log_bucket_v1('a.attempted_at', p_interval, p_origin),
        _values,
        concat_ws(
            ' AND ', format('a.attempted_at >= %L::timestamptz AND a.attempted_at < %L::timestamptz', p_start, p_end),
            projections.log_any_of_v1('a.tenant', p_tenants),
            projections.log_filters_v1('a', p_filters)
        ),
        p_limit
    );
END;
$$;
