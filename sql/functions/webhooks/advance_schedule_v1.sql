-- Moves a schedule on from the tick at which it was found, in the transaction that sends; returns whether it was still there:
-- if not, somebody else has sent. p_last_at is the last tick that was sent, NULL: none; p_error why one was not. With p_hold,
-- it is not looked at for so long.
CREATE OR REPLACE FUNCTION projections.advance_schedule_v1(
    p_schedule_id text, p_found_at timestamptz, p_next_at timestamptz, p_last_at timestamptz, p_error text,
    p_hold interval DEFAULT '0 seconds'
)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE projections.webhook_schedules AS s
    SET next_at = p_next_at, last_at = coalesce(p_last_at, s.last_at), error = p_error, held_until = clock_timestamp() + p_hold
    WHERE s.schedule_id = p_schedule_id AND s.next_at = p_found_at;
    RETURN FOUND;
END;
$$;
