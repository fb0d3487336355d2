-- Takes the locks that a partition is exchanged under: nobody reads or writes the log until the transaction ends.
-- Each attempt gives up after lock_timeout, and lets everybody through who has come to wait behind it, before the next.
CREATE OR REPLACE FUNCTION projections._lock_partition_v1(p_name text, p_attempts integer, p_pause interval)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    FOR _attempt IN 1..p_attempts LOOP
        BEGIN
            LOCK TABLE ONLY projections.events IN ACCESS EXCLUSIVE MODE;
            -- ATTACH reads the default partition through: it may hold no event of the time.
            LOCK TABLE projections.events_default IN ACCESS EXCLUSIVE MODE;
            EXECUTE format('LOCK TABLE projections.%I IN ACCESS EXCLUSIVE MODE', p_name);
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
