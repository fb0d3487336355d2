-- How endpoints fare: what waits, what is dead, and what their attempts of the last p_window came to. Times in seconds.
-- A tenant of NULL is any.
CREATE OR REPLACE FUNCTION projections.endpoint_stats_v1(p_tenant text DEFAULT NULL, p_window interval DEFAULT '1 hour')
RETURNS TABLE (
    endpoint_id text, tenant text, url text, state text, reason text, pending bigint, waiting bigint, in_flight bigint, dead bigint,
    failures integer, failing_since timestamptz, blocked_until timestamptz, lag double precision,
    succeeded bigint, failed bigint, median double precision, slowest_percent double precision
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        e.endpoint_id, e.tenant, e.url, e.state, e.reason, coalesce(d.pending, 0), coalesce(d.waiting, 0), coalesce(d.in_flight, 0),
        coalesce(d.dead, 0), c.failures, c.failing_since, nullif(c.blocked_until, '1970-01-01T00:00:00Z'),
        coalesce(extract(EPOCH FROM clock_timestamp() - d.oldest)::double precision, 0),
        coalesce(a.succeeded, 0), coalesce(a.failed, 0), a.median, a.slowest_percent
    FROM projections.webhook_endpoints AS e
    INNER JOIN projections.webhook_circuits AS c ON e.endpoint_id = c.endpoint_id
    LEFT JOIN (
        SELECT
            d.endpoint_id, count(*) FILTER (WHERE d.state = 'pending') AS pending, count(*) FILTER (WHERE d.state = 'waiting') AS waiting,
            count(*) FILTER (WHERE d.state = 'leased') AS in_flight, count(*) FILTER (WHERE d.state = 'dead') AS dead,
            min(d.created_at) FILTER (WHERE d.state IN ('waiting', 'pending', 'leased')) AS oldest
        FROM projections.webhook_deliveries AS d
        WHERE d.state IN ('waiting', 'pending', 'leased', 'dead') AND (p_tenant IS NULL OR d.tenant = p_tenant)
        GROUP BY d.endpoint_id
    ) AS d ON e.endpoint_id = d.endpoint_id
    LEFT JOIN (
        SELECT
            a.endpoint_id, count(*) FILTER (WHERE a.status = 'success') AS succeeded, count(*) FILTER (WHERE a.status = 'failed') AS failed,
            percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(EPOCH FROM a.took)::double precision) AS median,
            percentile_cont(0.99) WITHIN GROUP (ORDER BY extract(EPOCH FROM a.took)::double precision) AS slowest_percent
        FROM projections.webhook_attempts AS a
        WHERE a.attempted_at > clock_timestamp() - p_window AND (p_tenant IS NULL OR a.tenant = p_tenant)
        GROUP BY a.endpoint_id
    ) AS a ON e.endpoint_id = a.endpoint_id
    WHERE p_tenant IS NULL OR e.tenant = p_tenant
    ORDER BY e.tenant, e.endpoint_id
$$;
