-- Which times of the journal projections and their rebuilds still need. Looks at no row that there are many of, so that it can
-- be asked under locks.
CREATE OR REPLACE FUNCTION projections._projection_holders_v1()
RETURNS TABLE (kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY
    SELECT 'projection', p.name, r.since, 'infinity'::timestamptz, format(
        CASE WHEN r.imported THEN 'has not read an import from %s' ELSE 'stands at %s' END, date_trunc('second', r.since)
    )
    FROM projections.projections AS p
    CROSS JOIN LATERAL (
        SELECT coalesce(min(least(r.horizon, i.since)), '-infinity') AS since, coalesce(min(i.since) < min(r.horizon), FALSE) AS imported
        FROM projections.projection_ranges AS r
        LEFT JOIN LATERAL (
            SELECT min(i.from_timestamp) AS since FROM projections.imports AS i
            WHERE coalesce(i.entity_type = ANY (p.entity_types), TRUE) AND i.import_id > r.import_id
        ) AS i ON TRUE
        WHERE r.projection_id = p.projection_id
    ) AS r
    WHERE p.journal IS NULL  -- else it reads nothing of this one
    UNION ALL
    -- It folds and verifies from the first event on; swapped in, the projection goes on from its fence.
    SELECT 'rebuild', p.name, '-infinity', 'infinity', format('is being rebuilt (rebuild %s, %s)', b.rebuild_id, b.state)
    FROM projections.rebuilds AS b
    INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
    WHERE b.state IN ('folding', 'verified');
END;
$$;
