-- How far a standby is, and on which timeline: the place first, so that it was reached on that timeline or one before. The control
-- file names a new timeline minutes late, so the one that is streamed is asked for; null where nothing is streamed, or where the
-- role may not see it. Each commit before the place is visible to later statements.
WITH replayed AS MATERIALIZED (
    SELECT
        pg_is_in_recovery() AS is_standby,
        pg_wal_lsn_diff(coalesce(pg_last_wal_replay_lsn(), '0/0'), '0/0')::bigint AS replayed_until
)

SELECT
    replayed.*,
    (SELECT r.received_tli FROM pg_catalog.pg_stat_wal_receiver AS r) AS timeline,
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_timeline,
    quote_ident(current_user) AS role,
    pg_postmaster_start_time() AS started_at,
    (SELECT s.system_identifier FROM pg_control_system() AS s) AS system_identifier
FROM replayed
