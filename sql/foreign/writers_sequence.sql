-- Who holds the lock of an INSERT into the table, and since when: for people.
SELECT
    l.pid,
    a.application_name,
    a.xact_start AS started_at,
    CASE WHEN l.pid IS NULL THEN 'p' ELSE '' END || l.virtualtransaction AS holder
FROM pg_catalog.pg_locks AS l
LEFT JOIN pg_catalog.pg_stat_activity AS a ON l.pid = a.pid
WHERE
    l.locktype = 'relation'
    AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND (
        l.relation = foreign_table::regclass
        OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(foreign_table::regclass) AS t)
    )
    AND l.mode = 'RowExclusiveLock'
    AND l.granted
ORDER BY a.xact_start
