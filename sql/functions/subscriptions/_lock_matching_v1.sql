-- What whoever writes matches does before the first: takes a lock whose key is the last number given out, as far as it fits.
-- Its own numbers are higher, and the lock is gone only after they can be seen: so settled_matches_v1 knows, with nothing
-- stored, up to which number nothing can appear any more.
CREATE OR REPLACE FUNCTION projections._lock_matching_v1()
RETURNS void
LANGUAGE plpgsql -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM pg_advisory_xact_lock_shared(
        hashtext('slice-projections matches'),
        ((i.last_value - CASE WHEN i.is_called THEN 0 ELSE 1 END) & 2147483647)::integer
    )
    FROM projections.match_ids AS i;
END;
$$;
