-- Takes locks as _lock_within_v1 does, in a number of attempts: where somebody is in the way, the caller's work is not lost.
-- Each attempt gives up after lock_timeout, and lets everybody through who has come to wait behind it, before the next.
CREATE OR REPLACE FUNCTION projections._lock_patiently_v1(
    p_locks text[], p_attempts integer DEFAULT 5, p_pause interval DEFAULT '1 second'
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR _attempt IN 1..p_attempts LOOP
        BEGIN
            PERFORM projections._lock_within_v1(p_locks);
            RETURN;
        EXCEPTION
            WHEN lock_not_available OR deadlock_detected THEN
                IF _attempt = p_attempts THEN
                    RAISE;
                END IF;
        END;
        PERFORM pg_sleep(extract(EPOCH FROM p_pause));
    END LOOP;
END;
$$;
