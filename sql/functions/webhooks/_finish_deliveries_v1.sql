-- Says the outcome of attempts: stores them in the log, and what follows for the deliveries and their endpoints, together.
-- Returns the deliveries whose lease still held; of others nothing is stored: somebody else may be at them.
--
-- Raises PJ096 for another verdict, or a retry without a delay; lock_not_available where somebody holds one of the endpoints
-- for more than two seconds: store those of each by itself.
--
-- Arrays run in parallel. p_verdicts: 'done', 'retry' (after p_delays), 'dead', or 'release' (never sent: the attempt is given
-- back, and nothing is logged; it is due after p_delays, or at once). p_pauses keep the whole endpoint from being sent to;
-- p_disable says that it wants no more. Of a message that was erased meanwhile, no answer is kept, and no attempt follows.
CREATE OR REPLACE FUNCTION projections._finish_deliveries_v1(
    p_delivery_ids bigint[],
    p_tokens bigint[],
    p_verdicts text[],
    p_delays interval[],
    p_pauses interval[],
    p_disable boolean[],
    p_codes text[],
    p_responses text[],
    p_took interval[]
)
RETURNS SETOF bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET lock_timeout = '2s'
SET plan_cache_mode = 'force_generic_plan'
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _held bigint[];
    _places integer[];
BEGIN
    IF EXISTS (
        SELECT FROM unnest(p_verdicts, p_delays) AS v (verdict, delay)
        WHERE v.verdict IS NULL OR v.verdict NOT IN ('done', 'retry', 'dead', 'release') OR (v.verdict = 'retry' AND v.delay IS NULL)
    ) THEN
        RAISE EXCEPTION 'a verdict is done, retry with a delay, dead or release' USING ERRCODE = 'PJ096';
    END IF;
    PERFORM projections._lock_deliveries_v1(p_delivery_ids);
    SELECT array_agg(p.delivery_id), array_agg(p.place::integer) INTO _held, _places
    FROM unnest(p_delivery_ids, p_tokens) WITH ORDINALITY AS p (delivery_id, token, place)
    CROSS JOIN LATERAL (
        SELECT FROM projections.webhook_deliveries AS d
        WHERE d.delivery_id = p.delivery_id AND d.state = 'leased' AND d.lease_token = p.token LIMIT 1
    ) AS d;
    IF _held IS NULL THEN
        RETURN;
    END IF;
    PERFORM projections._log_attempts_v1(
        array_agg(projections.uuid7_v1(_now)::text), array_agg(d.tenant), array_agg(d.event_id), array_agg(d.event_time),
        array_agg(d.topic), array_agg(d.endpoint_id), array_agg('webhook'::text), array_agg(d.attempts), array_agg(d.manual),
        array_agg(CASE p_verdicts[h.place] WHEN 'done' THEN 'success' ELSE 'failed' END),
        array_agg(_now - p_took[h.place]), array_agg(p_codes[h.place]),
        array_agg(CASE WHEN NOT d.erased THEN p_responses[h.place] END), array_agg(p_took[h.place])
    )
    FROM unnest(_held, _places) AS h (delivery_id, place)
    INNER JOIN projections.webhook_deliveries AS d ON h.delivery_id = d.delivery_id
    WHERE p_verdicts[h.place] <> 'release'
    HAVING count(*) > 0;
    UPDATE projections.webhook_deliveries AS d SET
        state = CASE WHEN p_verdicts[h.place] = 'done' THEN 'done' WHEN d.erased THEN 'erased'
            WHEN p_verdicts[h.place] = 'dead' THEN 'dead' ELSE 'pending' END,
        attempts = d.attempts - CASE p_verdicts[h.place] WHEN 'release' THEN 1 ELSE 0 END,
        manual = d.manual AND p_verdicts[h.place] = 'release',
        next_at = CASE
            WHEN p_verdicts[h.place] IN ('retry', 'release') THEN coalesce(_now + p_delays[h.place], d.next_at) ELSE d.next_at
        END,
        last_code = coalesce(p_codes[h.place], d.last_code),
        finished_at = CASE WHEN d.erased OR p_verdicts[h.place] IN ('done', 'dead') THEN _now END,
        data = CASE p_verdicts[h.place] WHEN 'dead' THEN coalesce(d.data, (
            SELECT v.data FROM projections.webhook_events AS v WHERE v.event_time = d.event_time AND v.event_id = d.event_id
        )) WHEN 'done' THEN NULL ELSE d.data END,
        lease_until = NULL, lease_token = NULL
    FROM unnest(_held, _places) AS h (delivery_id, place)
    WHERE d.delivery_id = h.delivery_id;
    PERFORM projections._follow_on_v1(_held);
    PERFORM projections._judge_endpoint_v1(
        o.endpoint_id, o.verdicts, o.pause, o.disable
    )
    FROM (
        SELECT
            d.endpoint_id, array_agg(p_verdicts[h.place] ORDER BY h.place) AS verdicts, max(p_pauses[h.place]) AS pause,
            bool_or(coalesce(p_disable[h.place], FALSE)) AS disable
        FROM unnest(_held, _places) AS h (delivery_id, place)
        INNER JOIN projections.webhook_deliveries AS d ON h.delivery_id = d.delivery_id
        -- What could not even be sent, or whose sender has died, is the sender's own fault.
        WHERE p_verdicts[h.place] <> 'release' AND coalesce(p_codes[h.place], '') NOT IN ('unsendable', 'event_gone', 'worker_lost')
        GROUP BY d.endpoint_id
        ORDER BY d.endpoint_id
    ) AS o;
    RETURN QUERY SELECT unnest(_held);
END;
$$;
