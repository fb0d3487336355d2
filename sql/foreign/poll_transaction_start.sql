-- What is in flight in a table whose rows are stamped with the start of their transaction: the time, then who may commit rows that are
-- stamped no later, with their starts. What is prepared is looked up last: it is there before its session lets go of it.
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
        coalesce(array_agg(a.holder), '{}') AS holders,
        coalesce(array_agg(a.start), '{}') AS starts
    FROM foreign_sessions AS a
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
