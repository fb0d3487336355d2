-- Transactions that are open, and since when: for people.
SELECT
    a.pid,
    a.application_name,
    a.xact_start AS started_at,
    a.pid || ' ' || coalesce(extract(EPOCH FROM a.xact_start), 0) AS holder
FROM pg_catalog.pg_stat_activity AS a
WHERE
    a.datname = current_database()
    AND a.pid <> pg_backend_pid()
    AND a.backend_type NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
    AND (a.xact_start IS NOT NULL OR coalesce(a.state, 'disabled') = 'disabled')
UNION ALL
SELECT
    NULL AS pid,
    NULL AS application_name,
    x.prepared AS started_at,
    'p' || x.transaction AS holder
FROM pg_catalog.pg_prepared_xacts AS x
WHERE x.database = current_database()
ORDER BY started_at
