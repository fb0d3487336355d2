-- Says that somebody can send ticks, in the transaction that does: when it fails, nobody could. Who comes after more than a
-- minute without anybody notes that time as a standstill; others wait until it is noted, for ticks are judged by it.
CREATE OR REPLACE FUNCTION projections._watch_schedules_v1()
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _since timestamptz := (SELECT s.began_at FROM projections.webhook_standstills AS s WHERE s.ended_at = 'infinity');
BEGIN
    IF _now BETWEEN _since AND _since + interval '10 seconds' THEN
        RETURN;
    ELSIF _now BETWEEN _since AND _since + interval '1 minute' THEN
        -- Whoever has the row says the same.
        PERFORM FROM projections.webhook_standstills AS s WHERE s.ended_at = 'infinity' FOR NO KEY UPDATE SKIP LOCKED;
        IF NOT FOUND THEN
            RETURN;
        END IF;
    ELSE
        INSERT INTO projections.webhook_standstills (began_at) VALUES ('1970-01-01T00:00:00Z') ON CONFLICT DO NOTHING;
        SELECT s.began_at INTO _since FROM projections.webhook_standstills AS s WHERE s.ended_at = 'infinity' FOR NO KEY UPDATE;
        _now := clock_timestamp();
        IF _now - _since > interval '1 minute' THEN
            PERFORM projections._note_standstill_v1(_since, _now);
        ELSIF EXISTS (SELECT FROM projections.webhook_standstills AS s WHERE s.ended_at > _now AND s.ended_at < 'infinity') THEN
            -- The clock was ahead, and was set back: ticks of the time until then are not missed, for somebody can send.
            PERFORM projections._note_standstill_v1(_now, _now);
        END IF;
    END IF;
    UPDATE projections.webhook_standstills AS s SET began_at = _now WHERE s.ended_at = 'infinity';
END;
$$;
