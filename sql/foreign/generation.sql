-- As projections.generation_v1 and replayed_until_v1 say it, where nothing is installed.
SELECT
    CASE
        WHEN pg_is_in_recovery() THEN (SELECT c.timeline_id FROM pg_control_checkpoint() AS c)
        ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer
    END AS timeline,
    pg_postmaster_start_time() AS started_at,
    pg_wal_lsn_diff(
        CASE WHEN pg_is_in_recovery() THEN coalesce(pg_last_wal_replay_lsn(), '0/0') ELSE pg_current_wal_lsn() END, '0/0'
    )::bigint AS wal_position,
    (SELECT s.system_identifier FROM pg_control_system() AS s) AS system_identifier,
    CASE WHEN pg_is_in_recovery() THEN coalesce(
        pg_last_xact_replay_timestamp(), (SELECT c.checkpoint_time FROM pg_control_checkpoint() AS c)
    ) END AS replayed_until
