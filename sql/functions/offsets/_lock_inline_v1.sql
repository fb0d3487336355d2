-- Waits until no transaction handles events of a projection inline, and keeps others from it until the end of this one: what is set back
-- must not be gone on from. Before any other lock. Others wait behind: without a lock_timeout it lets them through now and then, for
-- one transaction that is left open must not keep everybody from appending.
CREATE OR REPLACE FUNCTION projections._lock_inline_v1(p_projection_id integer)
RETURNS void
LANGUAGE plpgsql -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _limit CONSTANT text := current_setting('lock_timeout');
    -- A deadlock is seen by whoever waits for this long.
    _patience CONSTANT interval := current_setting('deadlock_timeout')::interval + interval '0.5 seconds';
BEGIN
    LOOP
        BEGIN
            IF _limit = '0' THEN
                PERFORM set_config('lock_timeout', ceil(1000 * extract(EPOCH FROM _patience))::text, TRUE);
            END IF;
            PERFORM pg_advisory_xact_lock(hashtext('slice-projections inline'), p_projection_id);
            PERFORM set_config('lock_timeout', _limit, TRUE);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF _limit <> '0' THEN
                RAISE;
            END IF;
        END;
        PERFORM pg_sleep_for(_patience);
    END LOOP;
END;
$$;
