-- Takes back attempts whose lease is over: whoever made them has died, or is cut off. They are used up, and logged as failed
-- with the code 'worker_lost'; the delivery goes on at once, or is dead when its attempts are. The endpoint is not to blame.
-- Endpoints that somebody holds are passed over: the next call takes theirs. Returns how many.
CREATE OR REPLACE FUNCTION projections._reap_deliveries_v1(p_limit integer DEFAULT 1000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _free CONSTANT text[] := ARRAY(
        SELECT c.endpoint_id FROM projections.webhook_circuits AS c
        WHERE c.endpoint_id IN (
            SELECT d.endpoint_id FROM projections.webhook_deliveries AS d WHERE d.state = 'leased' AND d.lease_until < _now
        )
        FOR NO KEY UPDATE SKIP LOCKED
    );
BEGIN
    IF _free = '{}' THEN
        RETURN 0;
    END IF;
    -- Of some the outcome may come meanwhile: what is finished has another token.
    RETURN (
        SELECT count(f.delivery_id)
        FROM (
            SELECT
                array_agg(o.delivery_id) AS ids, array_agg(o.lease_token) AS tokens,
                array_agg(CASE WHEN o.attempts > o.retries THEN 'dead' ELSE 'retry' END) AS verdicts, array_agg('0'::interval) AS nothing,
                array_agg('worker_lost'::text) AS codes, array_agg(''::text) AS responses
            FROM (
                SELECT
                    d.delivery_id, d.lease_token, d.attempts,
                    jsonb_array_length(projections._policy_within_limits_v1(e.policy) -> 'schedule') AS retries
                FROM projections.webhook_deliveries AS d
                CROSS JOIN LATERAL (
                    SELECT e.policy FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = d.endpoint_id LIMIT 1
                ) AS e
                WHERE d.state = 'leased' AND d.lease_until < _now AND d.endpoint_id = ANY (_free) LIMIT p_limit
            ) AS o
        ) AS a
        CROSS JOIN LATERAL projections._finish_deliveries_v1(
            a.ids, a.tokens, a.verdicts, a.nothing, '{}', '{}', a.codes, a.responses, a.nothing
        ) AS f (delivery_id)
    );
END;
$$;
