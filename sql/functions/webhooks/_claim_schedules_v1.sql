-- Takes schedules that are due for the caller's transaction, with the time to go by; at most p_limit, and the one with which their
-- data is p_bytes is the last. Any number of processes may: what one has is passed over by others, and is theirs when it does not
-- commit within 10 seconds of silence: it may be frozen, or cut off.
--
-- Those that have been due for longest have half of the places and of the bytes. Where more are due, tenants come next, in turn
-- from a random one on, each with one, so that no tenant waits for all that is due of another; at most 1,000 are looked at.
CREATE OR REPLACE FUNCTION projections._claim_schedules_v1(p_limit integer DEFAULT 200, p_bytes bigint DEFAULT 4194304)
RETURNS TABLE (
    schedule_id text, tenant text, name text, cron text, timezone text, topic text, data text, endpoint_id text, missed text,
    next_at timestamptz, taken_at timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz;
    _oldest refcursor;
    _row record;
    _taken text[] := '{}';
    _bytes bigint := 0;
    _first CONSTANT bigint := hashtextextended(gen_random_uuid()::text, 0);
    -- The hash of the tenant whose turn it is.
    _turn bigint := _first;
    _wrapped boolean := FALSE;
BEGIN
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', TRUE);
    PERFORM projections._watch_schedules_v1();
    -- Once: a condition with a clock in it would walk the whole index. After the watch: what was due before is judged by it.
    _now := clock_timestamp();
    OPEN _oldest FOR
        SELECT s.schedule_id, octet_length(s.data) AS size FROM projections.webhook_schedules AS s
        WHERE NOT s.paused AND s.next_at <= _now AND s.held_until <= _now
        ORDER BY s.next_at FOR NO KEY UPDATE SKIP LOCKED;
    <<parts>>
    FOR _part IN 1..3 LOOP
        FOR _looks IN 1..1000 LOOP
            EXIT WHEN cardinality(_taken) >= CASE _part WHEN 1 THEN p_limit / 2 ELSE p_limit END
            OR _bytes >= CASE _part WHEN 1 THEN p_bytes / 2 ELSE p_bytes END;
            IF _part <> 2 THEN
                FETCH _oldest INTO _row;
                EXIT parts WHEN NOT FOUND;
                CONTINUE WHEN _row.schedule_id = ANY (_taken);
            ELSE
                -- By pairs: only the index of tenants has them in this order.
                SELECT hashtextextended(s.tenant, 0) AS turn, s.next_at INTO _row FROM projections.webhook_schedules AS s
                WHERE NOT s.paused AND (hashtextextended(s.tenant, 0), s.next_at) > (_turn, 'infinity'::timestamptz)
                ORDER BY hashtextextended(s.tenant, 0), s.next_at LIMIT 1;
                EXIT WHEN _wrapped AND (NOT FOUND OR _row.turn > _first);
                _wrapped := _wrapped OR NOT FOUND;
                _turn := coalesce(_row.turn, -9223372036854775808);
                CONTINUE WHEN (_row.next_at <= _now) IS NOT TRUE;
                SELECT s.schedule_id, octet_length(s.data) AS size INTO _row FROM projections.webhook_schedules AS s
                WHERE NOT s.paused AND s.held_until <= _now AND s.schedule_id <> ALL (_taken)
                AND (hashtextextended(s.tenant, 0), s.next_at) >= (_turn, '-infinity'::timestamptz)
                AND (hashtextextended(s.tenant, 0), s.next_at) <= (_turn, _now)
                ORDER BY hashtextextended(s.tenant, 0), s.next_at LIMIT 1 FOR NO KEY UPDATE SKIP LOCKED;
                CONTINUE WHEN NOT FOUND;
            END IF;
            _taken := _taken || _row.schedule_id;
            _bytes := _bytes + _row.size;
        END LOOP;
    END LOOP;
    RETURN QUERY
    SELECT
        s.schedule_id, s.tenant, s.name, s.cron, s.timezone, s.topic, s.data, s.endpoint_id, s.missed, s.next_at, _now
    FROM unnest(_taken) WITH ORDINALITY AS t (schedule_id, place)
    CROSS JOIN LATERAL (SELECT s.* FROM projections.webhook_schedules AS s WHERE s.schedule_id = t.schedule_id) AS s;
END;
$$;
