-- Which life of the database this is, and how far it has come: what a process compares with what it has seen before, to
-- notice that the database went back in time. A promoted standby and a restore to a point in time begin a new timeline; a
-- start has its own time; within both, the log only grows. Needs no privilege, and answers on a standby, too.
-- Not in SQL, as all that is called for each poll or batch: what is not inlined would be parsed and planned in each call.
CREATE OR REPLACE FUNCTION projections.generation_v1()
RETURNS TABLE (timeline integer, started_at timestamptz, wal_position bigint, system_identifier bigint)
LANGUAGE plpgsql
VOLATILE
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
AS $$
BEGIN
    RETURN QUERY SELECT
        projections.timeline_v1(),
        pg_postmaster_start_time(),
        pg_wal_lsn_diff(
            CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_lsn() END, '0/0'
        )::bigint,
        (SELECT s.system_identifier FROM pg_control_system() AS s);
END;
$$;
