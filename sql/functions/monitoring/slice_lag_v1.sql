-- What is not handled yet, by slice: the age and the time of the oldest such event, how many there are, and the sources
-- that are parked, whose events count apart. A slice that has neither has no row. Exact, whether or not a worker runs.
--
-- Everything before a range's horizon is handled, but for imports that it has not read yet; nothing after its newest
-- handled event is. Only what lies between is compared with the offsets; the rest is counted from the index alone.
-- docs/decisions/lag-from-the-database.md has the measurements.
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
-- All statements see the same snapshot: the caller's.
STABLE
SET search_path = pg_catalog, pg_temp
-- Along the index and into hash tables, whatever the statistics say: they lag behind appends, and a million events
-- take three times as long where they are sorted.
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET enable_nestloop = off
SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    _projection record;
    -- By slice, from 1: where to begin, up to where to compare with offsets, and whether sources are parked.
    _since timestamptz[];
    _until timestamptz[];
    _has_parked boolean[];
    _first timestamptz;
    _first_until timestamptz;
    _last_until timestamptz;
BEGIN
    SELECT p.entity_type, p.evicted_before INTO _projection
    FROM projections.projections AS p WHERE p.projection_id = p_projection_id;

    WITH ranges AS MATERIALIZED (
        SELECT r.min_slice, r.max_slice, r.since, greatest(
            r.handled_until,
            r.since - INTERVAL '1 microsecond',
            -- What is older counts as handled where there is no offset. A horizon lies before it only when a clock went back.
            _projection.evicted_before - INTERVAL '1 microsecond'
        ) AS until
        FROM (
            SELECT r.min_slice, r.max_slice, r.handled_until, least(r.horizon, (
                SELECT min(i.from_timestamp) FROM projections.imports AS i
                WHERE i.entity_type = _projection.entity_type AND i.import_id > r.import_id
            )) AS since
            FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id
        ) AS r
    )
    SELECT
        array_agg(r.since ORDER BY s.slice),
        array_agg(r.until ORDER BY s.slice),
        array_agg(s.slice IN (
            SELECT k.slice FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id
        ) ORDER BY s.slice),
        min(r.since), min(r.until), max(r.until)
    INTO _since, _until, _has_parked, _first, _first_until, _last_until
    FROM ranges AS r
    CROSS JOIN LATERAL generate_series(r.min_slice::integer, r.max_slice::integer) AS s (slice);

    RETURN QUERY
    WITH after_newest AS (
        SELECT e.slice, min(e.db_timestamp) AS oldest, count(*) AS backlog
        FROM projections.events AS e
        WHERE e.entity_type = _projection.entity_type
        AND e.db_timestamp > _first_until
        AND e.db_timestamp > _until[e.slice + 1]
        AND (NOT _has_parked[e.slice + 1] OR e.source_id NOT IN (
            SELECT k.source_id FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id
        ))
        GROUP BY e.slice
    ), behind AS MATERIALIZED (
        -- Sources with unhandled events between the horizon and the newest handled event.
        SELECT s.source_id, s.handled_nr
        FROM (
            SELECT e.source_id, max(e.seq_nr) AS last_nr, coalesce((
                SELECT o.seq_nr FROM projections.source_offsets AS o
                WHERE o.projection_id = p_projection_id AND o.source_id = e.source_id
            ), 0) AS handled_nr
            FROM projections.events AS e
            WHERE e.entity_type = _projection.entity_type
            AND e.db_timestamp BETWEEN _first AND _last_until
            AND e.db_timestamp BETWEEN _since[e.slice + 1] AND _until[e.slice + 1]
            GROUP BY e.source_id
        ) AS s
        WHERE s.handled_nr < s.last_nr
        AND s.source_id NOT IN (
            SELECT k.source_id FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id
        )
    ), up_to_newest AS (
        SELECT e.slice, min(e.db_timestamp) AS oldest, count(*) AS backlog
        FROM projections.events AS e INNER JOIN behind AS b ON e.source_id = b.source_id
        WHERE e.entity_type = _projection.entity_type
        AND e.db_timestamp BETWEEN _first AND _last_until
        AND e.db_timestamp BETWEEN _since[e.slice + 1] AND _until[e.slice + 1]
        AND e.seq_nr > b.handled_nr
        AND (b.handled_nr > 0 OR e.db_timestamp >= _projection.evicted_before)
        GROUP BY e.slice
    ), found AS (
        SELECT a.slice, a.oldest, a.backlog, 0 AS parked, NULL::timestamptz AS parked_since FROM after_newest AS a
        UNION ALL
        SELECT u.slice, u.oldest, u.backlog, 0, NULL FROM up_to_newest AS u
        UNION ALL
        SELECT k.slice, NULL, 0, count(*), min(k.parked_at)
        FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id GROUP BY k.slice
    )
    SELECT
        f.slice, greatest(clock_timestamp() - min(f.oldest), INTERVAL '0'), min(f.oldest),
        sum(f.backlog)::bigint, sum(f.parked)::bigint, min(f.parked_since)
    FROM found AS f GROUP BY f.slice ORDER BY f.slice;
END;
$$;
