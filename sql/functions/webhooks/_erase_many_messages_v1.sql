-- Erases the payloads of messages of a tenant that fan-out has read and whose payloads are there, as _erase_messages_v1 does: those
-- with an order key, about topics, of a span of time; NULL is any. Looks at p_limit of them after a place at most, and at
-- fewer where these are for many endpoints, so that each call is short: go on with the last one looked at until that is NULL.
CREATE OR REPLACE FUNCTION projections._erase_many_messages_v1(
    p_tenant text, p_order_key text DEFAULT NULL, p_topics text[] DEFAULT NULL, p_since timestamptz DEFAULT NULL,
    p_until timestamptz DEFAULT NULL, p_after_time timestamptz DEFAULT NULL, p_after_id text DEFAULT '',
    p_limit integer DEFAULT 1000, OUT erased integer, OUT in_flight integer, OUT gone integer, OUT last_time timestamptz, OUT last_id text
)
RETURNS record
LANGUAGE plpgsql
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _chosen text[];
BEGIN
    SELECT
        array_agg(l.event_id) FILTER (WHERE l.chosen), (array_agg(l.event_time ORDER BY l.place DESC))[1],
        (array_agg(l.event_id ORDER BY l.place DESC))[1]
    INTO _chosen, last_time, last_id
    FROM (
        SELECT
            v.*, sum(v.deliveries) OVER (ORDER BY v.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM (
            SELECT
                v.event_time, v.event_id, v.chosen, row_number() OVER (ORDER BY v.event_time, v.event_id) AS place,
                CASE WHEN v.chosen THEN cardinality(v.endpoint_ids) ELSE 0 END AS deliveries
            FROM (
                SELECT
                    v.event_time, v.event_id, v.endpoint_ids,
                    v.erased_at IS NULL AND (p_order_key IS NULL OR coalesce(v.order_key, v.event_id) = p_order_key)
                    AND (p_topics IS NULL OR v.topic = ANY (p_topics)) AS chosen
                FROM projections.webhook_events AS v
                WHERE v.tenant = p_tenant
                AND (v.event_time, v.event_id) > (coalesce(p_after_time, '-infinity'), p_after_id)
                AND v.event_time >= coalesce(p_since, '-infinity') AND v.event_time < coalesce(p_until, 'infinity')
                ORDER BY v.event_time, v.event_id LIMIT p_limit
            ) AS v
        ) AS v
    ) AS l
    WHERE coalesce(l.before, 0) < p_limit;
    SELECT e.erased, e.in_flight, e.gone INTO erased, in_flight, gone FROM projections._erase_messages_v1(p_tenant, coalesce(_chosen, '{}')) AS e;
END;
$$;
