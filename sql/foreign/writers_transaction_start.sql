-- Who may commit rows stamped before now, and since when: for people.
SELECT
    a.pid,
    a.application_name,
    a.start AS started_at,
    a.holder
FROM foreign_sessions AS a
UNION ALL
SELECT
    NULL AS pid,
    NULL AS application_name,
    x.prepared AS started_at,
    'p' || x.transaction AS holder
FROM pg_catalog.pg_prepared_xacts AS x
WHERE x.database = current_database()
ORDER BY started_at
