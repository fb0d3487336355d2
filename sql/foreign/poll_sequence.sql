-- What is in flight in a table whose rows are numbered inside their INSERT: the lowest number that may still be drawn, then the
-- transactions that hold the lock of an INSERT. Whoever takes that lock later draws this number or a higher one. The list is made
-- for each value, so after it; what is read by later statements is read after the list.
SELECT
    time_of(n.place) AS polled_at,
    array(
        SELECT CASE WHEN l.pid IS NULL THEN 'p' ELSE '' END || l.virtualtransaction
        FROM pg_catalog.pg_locks AS l
        WHERE
            l.locktype = 'relation'
            AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
            AND (
                l.relation = foreign_table::regclass
                OR l.relation IN (SELECT t.relid FROM pg_catalog.pg_partition_tree(foreign_table::regclass) AS t)
            )
            AND l.mode = 'RowExclusiveLock'
            AND l.granted
            AND n.place IS NOT NULL
    ) AS holders,
    '{}'::bigint[] AS import_ids,
    '{}'::text[] AS import_types,
    '{}'::timestamptz[] AS imported_from,
    newest.times AS newest_events,
    g.timeline,
    g.started_at,
    g.wal_position,
    g.system_identifier,
    g.replayed_until
FROM (
    SELECT least(s.last_value, 9223372036854775806) + CASE WHEN s.is_called THEN 1 ELSE 0 END AS place
    FROM foreign_sequence AS s LIMIT 1 -- noqa: AM09
) AS n
CROSS JOIN foreign_generation AS g
CROSS JOIN foreign_newest AS newest
