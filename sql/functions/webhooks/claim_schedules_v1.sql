-- Takes schedules that are due for the caller's transaction, the longest due first, with the time to go by; at most p_limit,
-- and the one with which their data is p_bytes is the last. Any number of processes may: what one has is passed over by others,
-- and is theirs when it does not commit within 10 seconds of silence: it may be frozen, or cut off.
CREATE OR REPLACE FUNCTION projections.claim_schedules_v1(p_limit integer DEFAULT 200, p_bytes bigint DEFAULT 4194304)
RETURNS TABLE (
    schedule_id text, tenant text, name text, cron text, timezone text, topic text, data text, endpoint_id text, missed text,
    next_at timestamptz, taken_at timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _row record;
    _bytes bigint := 0;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', TRUE);
    PERFORM projections.watch_schedules_v1();
    -- Once: a condition with a clock in it would walk the whole index. After the watch: what was due before is judged by it.
    _now := clock_timestamp();
    FOR _row IN
        SELECT s.* FROM projections.webhook_schedules AS s
        WHERE NOT s.paused AND s.next_at <= _now AND s.held_until <= _now
        ORDER BY s.next_at LIMIT p_limit FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        RETURN QUERY SELECT
            _row.schedule_id, _row.tenant, _row.name, _row.cron, _row.timezone, _row.topic, _row.data, _row.endpoint_id,
            _row.missed, _row.next_at, _now;
        _bytes := _bytes + octet_length(_row.data);
        EXIT WHEN _bytes >= p_bytes;
    END LOOP;
END;
$$;
