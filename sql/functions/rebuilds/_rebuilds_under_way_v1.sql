-- The rebuilds that are unfinished: how far each is, and whether a process leads it now. Events are those folded in all parts, and in the
-- parts that are done.
CREATE OR REPLACE FUNCTION projections._rebuilds_under_way_v1()
RETURNS TABLE (
    projection_id integer,
    name text,
    min_slice smallint,
    max_slice smallint,
    version integer,
    state text,
    started_at timestamptz,
    elapsed interval,
    parts bigint,
    parts_done bigint,
    events bigint,
    events_of_done bigint,
    error text,
    led boolean
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        b.projection_id, projections._part_name_v1(p.name, p.journal), b.min_slice, b.max_slice, b.version, b.state, b.started_at,
        clock_timestamp() - b.started_at, k.parts, k.parts_done, k.events, k.events_of_done, k.error,
        EXISTS (
            SELECT FROM pg_catalog.pg_locks AS l
            WHERE l.locktype = 'advisory' AND l.granted
            AND l.classid::bigint = hashtext('slice-projections rebuild') & 4294967295 AND l.objid::bigint = b.projection_id
            AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
        )
    FROM projections.rebuilds AS b
    INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS parts, count(*) FILTER (WHERE r.done) AS parts_done, coalesce(sum(r.events), 0)::bigint AS events,
            coalesce(sum(r.events) FILTER (WHERE r.done), 0)::bigint AS events_of_done, min(r.error) AS error
        FROM projections.rebuild_parts AS r WHERE r.rebuild_id = b.rebuild_id
    ) AS k
    WHERE b.state IN ('folding', 'verified')
    ORDER BY b.started_at
$$;
