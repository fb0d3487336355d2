-- The number up to which every match can be seen, and none can appear any more. Matches are to be read after it in a
-- statement of its own: hence not within a transaction that keeps its snapshot.
CREATE OR REPLACE FUNCTION projections.settled_matches_v1()
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _last bigint;
    _lowest bigint;
BEGIN
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'reading matches needs the isolation level READ COMMITTED'
        USING ERRCODE = '25001', HINT = 'Set default_transaction_isolation for the role, or the session.';
    END IF;
    -- First the number, then the locks: who gives out lower ones has his by then.
    SELECT i.last_value - CASE WHEN i.is_called THEN 0 ELSE 1 END INTO _last FROM projections.match_ids AS i;
    -- A key that seems to lie almost 2^31 behind was taken since, and lies up to 2^24 ahead.
    SELECT min(_last - ((_last - l.objid::bigint) & 2147483647))
        FILTER (WHERE (_last - l.objid::bigint) & 2147483647 < 2130706432)
    INTO _lowest
    FROM pg_catalog.pg_locks AS l
    WHERE l.locktype = 'advisory'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND l.classid = (hashtext('slice-projections matches')::bigint & 4294967295)::oid
    AND l.objsubid = 2
    AND l.granted;
    RETURN least(_last, _lowest);
END;
$$;
