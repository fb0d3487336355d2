-- The sessions that may commit rows stamped no later than this query: since when their transaction is open (start), or no time where
-- they do not show it. A stamp is taken a moment before it is shown, and a process may lose its processor in between for as long as the
-- machine likes. So whoever shows no transaction is left out only if it waited for a message when that was looked up, and is idle in
-- a list of sessions that is made after that: what it stamps next is then stamped later. The first list is forgotten in between,
-- because the server keeps it to the end of the statement.
-- While a message is being processed, another transaction may begin that is stamped with its start: a second row where that is earlier.
-- What changes its name while it is open is marked by a leading 'p'. Needs pg_read_all_stats.
SELECT
    a.pid,
    a.application_name,
    s.start,
    CASE
        WHEN s.start IS NOT NULL THEN a.pid || ' ' || extract(EPOCH FROM s.start)
        WHEN a.state = 'disabled' OR a.state LIKE 'idle in transaction%' THEN 'p ' || a.pid
        ELSE a.pid || ' ? ' || coalesce(extract(EPOCH FROM a.state_change), 0)
    END AS holder
FROM (
    SELECT coalesce(array_agg(pg_stat_get_backend_pid(b.id)), '{}') AS pids
    FROM pg_catalog.pg_stat_get_backend_idset() AS b (id)
    WHERE pg_stat_get_backend_wait_event_type(b.id) IN ('Client', 'Activity', 'Extension')
) AS waiting
CROSS JOIN LATERAL (SELECT pg_stat_clear_snapshot() IS NULL AS never WHERE waiting.pids IS NOT NULL) AS forgotten
CROSS JOIN LATERAL pg_catalog.pg_stat_get_activity(CASE WHEN forgotten.never THEN 0 END) AS a
CROSS JOIN
    LATERAL (
        SELECT
            array_remove(
                ARRAY[
                    a.xact_start,
                    CASE
                        WHEN
                            a.backend_type = 'client backend' AND a.state IN ('active', 'fastpath function call')
                            AND (a.xact_start > a.query_start) IS NOT FALSE
                            THEN a.query_start
                    END
                ],
                NULL
            ) AS starts
    ) AS shown
CROSS JOIN LATERAL unnest(CASE WHEN shown.starts = '{}' THEN ARRAY[NULL::timestamptz] ELSE shown.starts END) AS s (start)
WHERE
    a.datid = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
    AND a.pid <> pg_backend_pid()
    AND a.backend_type NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
    AND (
        a.xact_start IS NOT NULL
        OR a.state = 'disabled'
        OR NOT a.pid = any(waiting.pids)
        OR (a.backend_type = 'client backend' AND a.state IS DISTINCT FROM 'idle')
    )
