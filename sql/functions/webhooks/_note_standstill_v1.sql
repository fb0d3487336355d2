-- Notes that nobody could send ticks in a time, and forgets those that no tick is judged by any more, and those that end later, by
-- a clock that was ahead; the newest keeps their number of ticks that were not sent.
CREATE OR REPLACE FUNCTION projections._note_standstill_v1(p_began_at timestamptz, p_ended_at timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _oldest timestamptz := (SELECT min(s.next_at) FROM projections.webhook_schedules AS s WHERE NOT s.paused);
BEGIN
    WITH forgotten AS (
        DELETE FROM projections.webhook_standstills AS s
        WHERE s.ended_at < least(_oldest, p_ended_at) OR (s.ended_at > p_ended_at AND s.ended_at < 'infinity')
        RETURNING s.skipped
    )
    INSERT INTO projections.webhook_standstills AS s (began_at, ended_at, skipped)
    SELECT p_began_at, p_ended_at, coalesce(sum(f.skipped), 0) FROM forgotten AS f
    ON CONFLICT (ended_at) DO UPDATE
    SET began_at = least(s.began_at, excluded.began_at), skipped = s.skipped + excluded.skipped;
END;
$$;
