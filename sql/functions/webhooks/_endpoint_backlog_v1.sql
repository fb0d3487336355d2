-- What is not delivered, by endpoint: counted from indexes alone, whatever has been delivered meanwhile. lag is the age, in
-- seconds, of the oldest that has not arrived and is not dead; due_at the time of the next attempt. What was in flight when its
-- process died is pending from the end of its lease on, also while nobody takes it back. A tenant of NULL is any.
CREATE OR REPLACE FUNCTION projections._endpoint_backlog_v1(p_tenant text DEFAULT NULL)
RETURNS TABLE (
    endpoint_id text, pending bigint, waiting bigint, in_flight bigint, dead bigint, lag double precision, due_at timestamptz
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT
        e.endpoint_id, p.number + l.lost, w.number, l.number, x.number,
        -- Ids grow with time: the lowest spares a look at every row.
        coalesce((
            SELECT greatest(extract(EPOCH FROM clock_timestamp() - d.created_at)::double precision, 0)
            FROM projections.webhook_deliveries AS d WHERE d.delivery_id = least(p.oldest, w.oldest, l.oldest)
        ), 0),
        least(p.due_at, CASE WHEN l.lost > 0 THEN l.lost_at END)
    FROM projections.webhook_endpoints AS e
    CROSS JOIN LATERAL (
        SELECT count(*) AS number, min(d.delivery_id) AS oldest, min(d.next_at) AS due_at
        FROM projections.webhook_deliveries AS d WHERE d.tenant = e.tenant AND d.endpoint_id = e.endpoint_id AND d.state = 'pending'
    ) AS p
    CROSS JOIN LATERAL (
        SELECT count(*) AS number, min(d.delivery_id) AS oldest
        FROM projections.webhook_deliveries AS d WHERE d.endpoint_id = e.endpoint_id AND d.state = 'waiting'
    ) AS w
    CROSS JOIN LATERAL (
        SELECT
            count(*) FILTER (WHERE d.lease_until > statement_timestamp()) AS number,
            count(*) FILTER (WHERE d.lease_until <= statement_timestamp()) AS lost,
            min(d.lease_until) AS lost_at, min(d.delivery_id) AS oldest
        FROM projections.webhook_deliveries AS d WHERE d.endpoint_id = e.endpoint_id AND d.state = 'leased'
    ) AS l
    CROSS JOIN LATERAL (
        SELECT count(*) AS number
        FROM projections.webhook_deliveries AS d WHERE d.endpoint_id = e.endpoint_id AND d.state = 'dead'
    ) AS x
    WHERE p_tenant IS NULL OR e.tenant = p_tenant
$$;
