-- Moves schedules on from the ticks at which they were claimed, in the transaction that sends. p_last_at are the last ticks that
-- were sent, NULL where none was; p_errors why; with p_holds, a schedule is not looked at for that time. p_skipped ticks were
-- missed and not sent.
-- Raises PJ013 where one is not at the tick that the caller knows: nothing of the transaction may stay.
CREATE OR REPLACE FUNCTION projections._advance_schedules_v1(
    p_schedule_ids text[], p_found_at timestamptz[], p_next_at timestamptz[], p_last_at timestamptz[], p_errors text[],
    p_holds interval[], p_skipped bigint DEFAULT 0
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_mergejoin = off
SET enable_hashjoin = off
AS $$
DECLARE
    _moved bigint;
BEGIN
    UPDATE projections.webhook_schedules AS s
    SET
        next_at = m.next_at, last_at = coalesce(m.last_at, s.last_at), error = m.error, held_until = clock_timestamp() + m.hold
    FROM unnest(p_schedule_ids, p_found_at, p_next_at, p_last_at, p_errors, p_holds)
    AS m (schedule_id, found_at, next_at, last_at, error, hold)
    WHERE s.schedule_id = m.schedule_id AND s.next_at = m.found_at;
    GET DIAGNOSTICS _moved = ROW_COUNT;
    IF _moved <> cardinality(p_schedule_ids) THEN
        RAISE EXCEPTION 'of % schedules only % are at the ticks that are known of them: the database went back in time',
            cardinality(p_schedule_ids), _moved
        USING ERRCODE = 'PJ013';
    END IF;
    IF p_skipped > 0 THEN
        UPDATE projections.webhook_standstills AS s SET skipped = s.skipped + p_skipped
        WHERE s.ended_at = (SELECT max(n.ended_at) FROM projections.webhook_standstills AS n WHERE n.ended_at < 'infinity');
    END IF;
END;
$$;
