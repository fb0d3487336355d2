-- Whether the caller is to do a chore now: of all processes one, each time that the interval has passed. One that dies over it is
-- followed by the next when the time has passed again, so a chore is safe when two do it at once.
CREATE OR REPLACE FUNCTION projections._take_turn_v1(p_chore text, p_every interval)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO projections.turns AS t (chore, taken_at) VALUES (p_chore, clock_timestamp())
    -- The time after the wait for who takes it meanwhile: of that one's turn, the time before would be older.
    ON CONFLICT (chore) DO UPDATE SET taken_at = clock_timestamp()
    -- A time to come is that of a clock which was ahead.
    WHERE t.taken_at <= clock_timestamp() - p_every OR t.taken_at > clock_timestamp();
    RETURN FOUND;
END;
$$;
