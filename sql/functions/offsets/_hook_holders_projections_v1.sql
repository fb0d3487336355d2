-- Which times of the journal projections, their rebuilds and their parked sources still need.
-- A projection needs all from its horizon on, or from an import on that it has not read; the horizon is where it stands
-- when nothing of it runs, too. Rows that are deleted from projections.projections hold nothing.
CREATE OR REPLACE FUNCTION projections._hook_holders_projections_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'events', p.kind, p.holder, p.since, p.until, p.reason FROM projections._projection_holders_v1() AS p
    UNION ALL
    -- A source waits at an event, and all its later ones behind that.
    SELECT 'events', 'parked', p.name, min(k.since), max(k.until), format('has %s parked sources', count(*))
    FROM projections.projections AS p
    INNER JOIN (
        SELECT k.projection_id, s.db_timestamp AS until, coalesce((
            SELECT min(e.db_timestamp) FROM projections.events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr
            AND e.db_timestamp BETWEEN coalesce(o.db_timestamp, '-infinity') AND k.parked_at
        ), o.db_timestamp, '-infinity') AS since
        FROM projections.parked_sources AS k
        INNER JOIN projections.sources AS s ON k.source_id = s.source_id
        LEFT JOIN projections.source_offsets AS o ON k.projection_id = o.projection_id AND k.source_id = o.source_id
    ) AS k ON p.projection_id = k.projection_id
    WHERE p.journal IS NULL
    GROUP BY p.projection_id;
END;
$$;
