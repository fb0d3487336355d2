-- The state of endpoints: what waits, what is dead, and what their attempts of the last p_window came to. Times in seconds.
-- A tenant of NULL is any. p_attempts: of each endpoint, look at this number of its newest ones alone; p_endpoints: of those
-- that there are, this number, those with troubles first. A monitor gives both, so that a look costs the same however much
-- has been delivered.
CREATE OR REPLACE FUNCTION projections.endpoint_stats_v1(
    p_tenant text DEFAULT NULL, p_window interval DEFAULT '1 hour', p_attempts integer DEFAULT NULL, p_endpoints integer DEFAULT NULL
)
RETURNS TABLE (
    endpoint_id text, tenant text, url text, state text, reason text, pending bigint, waiting bigint, in_flight bigint, dead bigint,
    failures integer, failing_since timestamptz, blocked_until timestamptz, lag double precision,
    succeeded bigint, failed bigint, median double precision, slowest_percent double precision,
    verified boolean, expired bigint
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
    SELECT
        e.endpoint_id, e.tenant, e.url, e.state, e.reason, e.pending, e.waiting, e.in_flight, e.dead, e.failures, e.failing_since,
        nullif(e.blocked_until, '1970-01-01T00:00:00Z'), e.lag, a.succeeded, a.failed, a.percentiles[1], a.percentiles[2],
        e.verified, e.expired
    FROM (
        SELECT
            e.endpoint_id, e.tenant, e.url, e.state, e.reason, c.failures, c.failing_since, c.blocked_until,
            b.pending, b.waiting, b.in_flight, b.dead, b.lag, coalesce(e.verified_url = e.url, FALSE) AS verified, c.expired
        FROM projections._endpoint_backlog_v1(p_tenant) AS b
        INNER JOIN projections.webhook_endpoints AS e ON b.endpoint_id = e.endpoint_id
        INNER JOIN projections.webhook_circuits AS c ON b.endpoint_id = c.endpoint_id
        ORDER BY
            (b.dead > 0)::integer + (c.failures > 0)::integer + (e.state <> 'active')::integer DESC,
            b.dead + b.pending + b.waiting + b.in_flight DESC, e.endpoint_id
        LIMIT p_endpoints
    ) AS e
    CROSS JOIN LATERAL (
        SELECT
            count(*) FILTER (WHERE a.status = 'success') AS succeeded, count(*) FILTER (WHERE a.status = 'failed') AS failed,
            percentile_cont(ARRAY[0.5, 0.99]) WITHIN GROUP (ORDER BY extract(EPOCH FROM a.took)::double precision) AS percentiles
        FROM (
            -- The start of the statement, for it does not change: older partitions are left out before they are opened.
            SELECT a.status, a.took FROM projections.webhook_attempts AS a
            WHERE a.endpoint_id = e.endpoint_id AND a.attempted_at > statement_timestamp() - p_window
            ORDER BY a.attempted_at DESC LIMIT p_attempts
        ) AS a
    ) AS a
    ORDER BY e.tenant, e.endpoint_id
$$;
