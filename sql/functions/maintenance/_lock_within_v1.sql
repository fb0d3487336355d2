-- Takes locks one after the other, all of them within lock_timeout: nobody waits behind the first for longer, however many
-- there are. Each is what follows LOCK TABLE. The caller's transaction ends soon after.
CREATE OR REPLACE FUNCTION projections._lock_within_v1(p_locks text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _began CONSTANT timestamptz := clock_timestamp();
    _limit CONSTANT text := current_setting('lock_timeout');
    _left interval;
    _lock text;
BEGIN
    FOREACH _lock IN ARRAY p_locks LOOP
        IF _limit <> '0' THEN
            _left := greatest(_limit::interval - (clock_timestamp() - _began), interval '1 millisecond');
            PERFORM set_config('lock_timeout', ceil(1000 * extract(EPOCH FROM _left))::text, TRUE);
        END IF;
        EXECUTE 'LOCK TABLE ' || _lock;
    END LOOP;
    PERFORM set_config('lock_timeout', _limit, TRUE);
END;
$$;
