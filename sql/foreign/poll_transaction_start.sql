-- What is in flight in a table whose rows are stamped with the start of their transaction: the time, then the transactions that are
-- open, with their starts. Needs pg_read_all_stats. One that was begun after the list was made is stamped with a later time, but
-- for the moment between its start and its showing it, which the margin covers. A session that does not show its start is a
-- holder without one for as long as it lasts. What is prepared is looked up last: it is there before its session lets go of it.
SELECT
    now() AS polled_at,
    h.holders || p.holders AS holders,
    '{}'::bigint[] AS import_ids,
    '{}'::text[] AS import_types,
    '{}'::timestamptz[] AS imported_from,
    newest.times AS newest_events,
    g.timeline,
    g.started_at,
    g.wal_position,
    g.system_identifier,
    g.replayed_until,
    h.starts || p.starts AS holder_starts
FROM (
    SELECT
        coalesce(array_agg(a.pid || ' ' || coalesce(extract(EPOCH FROM a.xact_start), 0)), '{}') AS holders,
        coalesce(array_agg(a.xact_start), '{}') AS starts
    FROM pg_catalog.pg_stat_activity AS a
    WHERE
        a.datname = current_database()
        AND a.pid <> pg_backend_pid()
        AND a.backend_type NOT IN ('autovacuum worker', 'parallel worker', 'walsender')
        AND (a.xact_start IS NOT NULL OR coalesce(a.state, 'disabled') = 'disabled')
) AS h
CROSS JOIN
    LATERAL (
        SELECT
            coalesce(array_agg('p' || x.transaction), '{}') AS holders,
            coalesce(array_agg(NULL::timestamptz), '{}') AS starts
        FROM pg_catalog.pg_prepared_xacts AS x
        WHERE x.database = current_database() AND h.holders IS NOT NULL
    ) AS p
CROSS JOIN foreign_generation AS g
CROSS JOIN foreign_newest AS newest
