-- Keeps what a request with this key is answered for p_for, in the transaction of what it does, which has asked
-- _recall_answer_v1 before.
--
-- Raises PJ098 where the tenant has p_at_most already; NULL is any number. Those that are being followed just now are not
-- counted: each has a connection, so they are few.
CREATE OR REPLACE FUNCTION projections._keep_answer_v1(
    p_tenant text, p_key text, p_answer text, p_for interval, p_at_most integer DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    IF p_at_most <= (
        SELECT count(*) FROM projections.webhook_answers AS a
        WHERE a.tenant = p_tenant AND a.expires_at > clock_timestamp()
    ) THEN
        RAISE EXCEPTION 'a tenant has at most % requests with an idempotency-key in %: leave it out, or ask later',
            p_at_most, p_for USING ERRCODE = 'PJ098';
    END IF;
    INSERT INTO projections.webhook_answers AS a (tenant, key, answer, expires_at)
    VALUES (p_tenant, p_key, p_answer, clock_timestamp() + p_for)
    -- One whose time is over.
    ON CONFLICT (tenant, key) DO UPDATE SET answer = excluded.answer, expires_at = excluded.expires_at;
END;
$$;
