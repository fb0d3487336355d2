-- The timeline of the database: a promoted standby and a restore to a point in time begin another.
CREATE OR REPLACE FUNCTION projections.timeline_v1()
RETURNS integer
LANGUAGE plpgsql
VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN (SELECT c.timeline_id FROM pg_control_checkpoint() AS c);
    END IF;
    -- The name of the log's file says it at once; the control file only after the checkpoint that follows a promotion.
    RETURN ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer;
END;
$$;
