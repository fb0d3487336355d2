-- The state of all endpoints together. Times in seconds, and of endpoints that are active: the age of the oldest delivery that has
-- not arrived and is not dead; how long one has been due that nothing holds back; since when the one that has failed for
-- longest fails, of those that have something to send. Of schedules: how long the tick has been due that has waited longest, and
-- how many ticks were missed and not sent. How many deliveries have expired, ever. Of client certificates of endpoints that are not
-- disabled: how many have expired, and when the first of the others does; NULL if there is none.
CREATE OR REPLACE FUNCTION projections._webhook_totals_v1()
RETURNS TABLE (
    active bigint, paused bigint, disabled bigint, failing bigint, pending bigint, waiting bigint, in_flight bigint, dead bigint,
    lag double precision, overdue double precision, failing_for double precision, ticks_lag double precision,
    ticks_skipped bigint, expired bigint, expired_certificates bigint, certificate_expires_in double precision
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        count(*) FILTER (WHERE e.state = 'active'), count(*) FILTER (WHERE e.state = 'paused'),
        count(*) FILTER (WHERE e.state = 'disabled'), count(*) FILTER (WHERE e.failing_since IS NOT NULL),
        coalesce(sum(e.pending), 0)::bigint, coalesce(sum(e.waiting), 0)::bigint, coalesce(sum(e.in_flight), 0)::bigint,
        coalesce(sum(e.dead), 0)::bigint, coalesce(max(e.lag) FILTER (WHERE e.state = 'active'), 0),
        coalesce(greatest(extract(EPOCH FROM clock_timestamp() - min(e.free_at))::double precision, 0), 0),
        coalesce(greatest(extract(EPOCH FROM clock_timestamp() - min(e.failing_since))::double precision, 0), 0),
        coalesce((
            SELECT greatest(extract(EPOCH FROM clock_timestamp() - min(s.next_at))::double precision, 0)
            FROM projections.webhook_schedules AS s WHERE NOT s.paused
        ), 0),
        (SELECT coalesce(sum(s.skipped), 0)::bigint FROM projections.webhook_standstills AS s),
        coalesce(sum(e.expired), 0)::bigint, count(*) FILTER (WHERE e.certificate_end <= clock_timestamp()),
        extract(EPOCH FROM min(e.certificate_end) FILTER (WHERE e.certificate_end > clock_timestamp()) - clock_timestamp())::double precision
    FROM (
        SELECT
            e.state, c.expired, b.pending, b.waiting, b.in_flight, b.dead, b.lag,
            CASE WHEN e.state = 'active' AND b.pending + b.waiting + b.in_flight > 0 THEN c.failing_since END AS failing_since,
            -- Not before its circuit closes, its rate lets one through, or somebody has made it active.
            CASE WHEN e.state = 'active' THEN greatest(b.due_at, CASE WHEN b.due_at IS NOT NULL
                THEN greatest(c.blocked_until, c.refilled_at, e.updated_at) END) END AS free_at,
            CASE WHEN e.state <> 'disabled' THEN (k.facts ->> 'not_after')::timestamptz END AS certificate_end
        FROM projections._endpoint_backlog_v1() AS b
        INNER JOIN projections.webhook_endpoints AS e ON b.endpoint_id = e.endpoint_id
        INNER JOIN projections.webhook_circuits AS c ON b.endpoint_id = c.endpoint_id
        LEFT JOIN projections.webhook_credentials AS k ON b.endpoint_id = k.endpoint_id AND k.kind = 'certificate'
    ) AS e
$$;
