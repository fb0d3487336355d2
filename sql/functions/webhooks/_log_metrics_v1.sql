-- Counts rows of the delivery log of a kind, 'event' or 'attempt', from one time up to another, by span of time (_log_bucket_v1) and
-- by dimensions: tenant, topic and endpoint_id, which an event counts for each of; of attempts also endpoint_type, status, code (empty
-- where there is none), manual and attempt_number. Filters are a JSON object of arrays by dimension.
-- There is one count of events; of attempts: all, those that succeeded, first ones that nobody asked for by hand, those after the
-- first, those by hand, and the sum of their numbers. A limited number of rows; what is 0 is left out.
-- PJ096: there is no such dimension.
CREATE OR REPLACE FUNCTION projections._log_metrics_v1(
    p_kind text, p_start timestamptz, p_end timestamptz, p_interval interval DEFAULT NULL,
    p_origin timestamptz DEFAULT '1970-01-01Z', p_dimensions text[] DEFAULT '{}', p_tenants text[] DEFAULT NULL,
    p_filters jsonb DEFAULT '{}', p_limit integer DEFAULT 100001
)
RETURNS TABLE (bucket timestamptz, dimensions text[], counts bigint[])
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    _of_events CONSTANT boolean := p_kind = 'event';
    _time CONSTANT text := CASE WHEN _of_events THEN 'r.event_time' ELSE 'r.attempted_at' END;
    _columns CONSTANT jsonb := '{"tenant": "r.tenant", "topic": "r.topic"}'::jsonb || CASE
        WHEN _of_events THEN '{"endpoint_id": "d.endpoint_id"}'
        ELSE '{"endpoint_id": "r.endpoint_id", "endpoint_type": "r.endpoint_type", "status": "r.status",
            "code": "coalesce(r.code, '''')", "manual": "r.manual::text", "attempt_number": "r.attempt_number::text"}'
    END::jsonb;
    _by_endpoint CONSTANT boolean := _of_events AND 'endpoint_id' = ANY (p_dimensions);
    _values text;
    _filters text;
BEGIN
    IF NOT (p_dimensions || ARRAY(SELECT jsonb_object_keys(p_filters))) <@ ARRAY(SELECT jsonb_object_keys(_columns)) THEN
        RAISE EXCEPTION 'there is no dimension % of each %', array_to_string(ARRAY(
            SELECT n.name FROM unnest(p_dimensions || ARRAY(SELECT jsonb_object_keys(p_filters))) AS n (name)
            WHERE NOT _columns ? n.name
        ), ', '), p_kind USING ERRCODE = 'PJ096';
    END IF;
    SELECT string_agg(_columns ->> d.name, ', ' ORDER BY d.place) INTO _values
    FROM unnest(p_dimensions) WITH ORDINALITY AS d (name, place);
    SELECT string_agg(CASE
        WHEN _of_events AND f.name = 'endpoint_id' THEN concat_ws(
            ' AND ', format('r.endpoint_ids && %L::text[]', c.chosen),
            CASE WHEN _by_endpoint THEN projections._log_any_of_v1('d.endpoint_id', c.chosen) END
        )
        ELSE projections._log_any_of_v1(_columns ->> f.name, c.chosen)
    END, ' AND ') INTO _filters
    FROM jsonb_each(p_filters) AS f (name, given)
    CROSS JOIN LATERAL (SELECT ARRAY(SELECT jsonb_array_elements_text(f.given)) AS chosen) AS c;
    RETURN QUERY EXECUTE format(
        'SELECT %s AS bucket, ARRAY[%s]::text[] AS dimensions, ARRAY[count(*)%s] FROM projections.%I AS r%s WHERE %s GROUP BY 1, 2 LIMIT %s',
        projections._log_bucket_v1(_time, p_interval, p_origin),
        _values,
        CASE WHEN NOT _of_events THEN ', count(*) FILTER (WHERE r.status = ''success''), '
            'count(*) FILTER (WHERE r.attempt_number = 1 AND NOT r.manual), count(*) FILTER (WHERE r.attempt_number > 1), '
            'count(*) FILTER (WHERE r.manual), sum(r.attempt_number)' END,
        'webhook_' || p_kind || 's',
        CASE WHEN _by_endpoint THEN ' CROSS JOIN LATERAL (SELECT DISTINCT u.* FROM unnest(r.endpoint_ids) AS u) AS d (endpoint_id)' END,
        concat_ws(
            ' AND ', format('%1$s >= %2$L::timestamptz AND %1$s < %3$L::timestamptz', _time, p_start, p_end),
            projections._log_any_of_v1('r.tenant', p_tenants), _filters
        ),
        p_limit
    );
END;
$$;
