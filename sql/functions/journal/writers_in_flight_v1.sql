-- Who holds the append lock, and since when: what holds the settled horizon back. For people; readers ask _poll_writers_v1, and
-- the holder is named as there: who waits for some of them tells by it who is waited for. Needs no privilege beyond what
-- pg_stat_activity shows (pg_read_all_stats for other roles' details).
CREATE OR REPLACE FUNCTION projections.writers_in_flight_v1()
RETURNS TABLE (pid integer, application_name text, started_at timestamptz, age interval, holder text)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.pid, a.application_name, a.xact_start, clock_timestamp() - a.xact_start,
        CASE WHEN l.pid IS NULL THEN 'p' ELSE '' END || l.virtualtransaction
    FROM pg_catalog.pg_locks AS l
    LEFT JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
    WHERE l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND l.relation = 'projections.sources'::regclass
    AND l.mode = 'RowExclusiveLock'
    AND l.granted
    ORDER BY a.xact_start
$$;
