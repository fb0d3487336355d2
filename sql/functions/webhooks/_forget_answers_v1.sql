-- Forgets answers whose time is over, a few at a time; returns how many.
CREATE OR REPLACE FUNCTION projections._forget_answers_v1(p_limit integer DEFAULT 5000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _forgotten integer;
BEGIN
    DELETE FROM projections.webhook_answers AS a
    WHERE a.ctid = ANY (ARRAY(
        SELECT o.ctid FROM projections.webhook_answers AS o
        WHERE o.expires_at <= clock_timestamp()
        ORDER BY o.expires_at LIMIT p_limit FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS _forgotten = ROW_COUNT;
    RETURN _forgotten;
END;
$$;
