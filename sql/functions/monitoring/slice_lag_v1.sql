-- What is not handled yet, by slice: the age and the time of the oldest such event, how many there are, and the sources
-- that are parked, whose events count apart. A slice that has neither has no row. Exact, whether or not a worker runs.
--
-- Everything before a range's horizon is handled, but for imports that it has not read yet; nothing after its newest
-- handled event is. Only what lies between is compared with the offsets; the rest is counted from the index alone.
CREATE OR REPLACE FUNCTION projections.slice_lag_v1(p_projection_id integer)
RETURNS TABLE (
    slice smallint,
    lag interval,
    oldest_unhandled timestamptz,
    backlog bigint,
    parked bigint,
    parked_since timestamptz
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _projection record;
    -- By slice, from 1: where to begin, the newest handled event, and whether a source is parked.
    _since timestamptz[];
    _until timestamptz[];
    _parked boolean[];
BEGIN
    SELECT p.entity_type, p.evicted_before INTO _projection
    FROM projections.projections AS p WHERE p.projection_id = p_projection_id;

    SELECT
        array_agg(r.since ORDER BY s.slice),
        array_agg(greatest(r.handled_until, r.since - INTERVAL '1 microsecond') ORDER BY s.slice),
        array_agg(k.slice IS NOT NULL ORDER BY s.slice)
    INTO _since, _until, _parked
    FROM (
        SELECT r.min_slice, r.max_slice, r.handled_until, least(r.horizon, (
            SELECT min(i.from_timestamp) FROM projections.imports AS i
            WHERE i.entity_type = _projection.entity_type AND i.import_id > r.import_id
        )) AS since
        FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id
    ) AS r
    CROSS JOIN LATERAL generate_series(r.min_slice::integer, r.max_slice::integer) AS s (slice)
    LEFT JOIN (
        SELECT DISTINCT k.slice FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id
    ) AS k ON s.slice = k.slice;

    RETURN QUERY
    WITH unhandled AS (
        SELECT e.slice, min(e.db_timestamp) AS oldest, count(*) AS backlog
        FROM projections.events AS e
        WHERE e.entity_type = _projection.entity_type
        AND e.db_timestamp > (SELECT min(u) FROM unnest(_until) AS u)
        AND e.db_timestamp > _until[e.slice + 1]
        AND (NOT _parked[e.slice + 1] OR NOT EXISTS (
            SELECT FROM projections.parked_sources AS k
            WHERE k.projection_id = p_projection_id AND k.source_id = e.source_id
        ))
        GROUP BY e.slice
        UNION ALL
        SELECT e.slice, min(e.db_timestamp), count(*)
        FROM projections.events AS e
        LEFT JOIN projections.source_offsets AS o
            ON o.projection_id = p_projection_id AND e.source_id = o.source_id
        WHERE e.entity_type = _projection.entity_type
        AND e.db_timestamp BETWEEN (SELECT min(s) FROM unnest(_since) AS s) AND (SELECT max(u) FROM unnest(_until) AS u)
        AND e.db_timestamp BETWEEN _since[e.slice + 1] AND _until[e.slice + 1]
        AND (e.seq_nr > o.seq_nr OR (o.seq_nr IS NULL AND e.db_timestamp >= _projection.evicted_before))
        AND (NOT _parked[e.slice + 1] OR NOT EXISTS (
            SELECT FROM projections.parked_sources AS k
            WHERE k.projection_id = p_projection_id AND k.source_id = e.source_id
        ))
        GROUP BY e.slice
    ), found AS (
        SELECT u.slice, min(u.oldest) AS oldest, sum(u.backlog)::bigint AS backlog, 0::bigint AS parked, NULL::timestamptz AS parked_since
        FROM unhandled AS u GROUP BY u.slice
        UNION ALL
        SELECT k.slice, NULL, 0, count(*), min(k.parked_at)
        FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id GROUP BY k.slice
    )
    SELECT
        f.slice, greatest(clock_timestamp() - min(f.oldest), INTERVAL '0'), min(f.oldest),
        max(f.backlog), max(f.parked), max(f.parked_since)
    FROM found AS f GROUP BY f.slice ORDER BY f.slice;
END;
$$;
