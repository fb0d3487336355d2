-- What projections of the journal that is here have not handled yet, all of them or those that are named, by slice: the age and
-- the time of the oldest such event, how many there are, and the sources that are parked, whose events count apart. A slice that
-- has neither has no row. Exact, whether or not a worker runs. Without p_by_slice, each range has one row, under its first slice.
-- With p_by_type, each entity type has rows of its own, and parked sources, whose type is not known, NULL.
--
-- Everything before a range's horizon is handled, but for imports that it has not read yet; nothing after its newest handled event
-- is, unless the projection is inline. Only what lies between is compared with the offsets; the rest is counted from the index
-- alone. Of a type that has no event since the oldest horizon of a projection that reads it, no more is asked.
-- docs/decisions/lag-from-the-database.md has the measurements.
CREATE OR REPLACE FUNCTION projections.slice_lag_v1(
    p_projection_ids integer[] DEFAULT NULL, p_by_slice boolean DEFAULT TRUE, p_by_type boolean DEFAULT FALSE
)
RETURNS TABLE (
    projection_id integer,
    slice smallint,
    lag interval,
    oldest_unhandled timestamptz,
    backlog bigint,
    parked bigint,
    parked_since timestamptz,
    entity_type text
)
LANGUAGE plpgsql
-- All statements see the same snapshot: the caller's.
STABLE
SET search_path = pg_catalog, pg_temp
-- Along the index and into hash tables, whatever the statistics say: they lag behind appends, and a million events
-- take three times as long where they are sorted. It is planned with the oldest horizon as a value: no partition that ends
-- before it is opened.
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
    -- Of each range.
    _ids integer[];
    _min_slices integer[];
    _max_slices integer[];
    _since timestamptz[];
    _until timestamptz[];
    _first timestamptz;
    _newest_import CONSTANT bigint := coalesce((SELECT max(i.import_id) FROM projections.imports AS i), 0);
    _all CONSTANT text[] := ARRAY(SELECT projections._entity_types_v1());
BEGIN
    SELECT
        array_agg(r.projection_id), array_agg(r.min_slice), array_agg(r.max_slice), array_agg(r.since),
        -- Of an inline projection any event may have been handled.
        array_agg(CASE WHEN r.mode = 'inline' THEN 'infinity' ELSE greatest(
            r.handled_until,
            r.since - INTERVAL '1 microsecond',
            -- What is older counts as handled where there is no offset. A horizon lies before it when a clock went back, or when a
            -- batch has left offsets out (_evict_up_to_v1).
            r.evicted_before - INTERVAL '1 microsecond'
        ) END),
        min(r.since)
    INTO _ids, _min_slices, _max_slices, _since, _until, _first
    FROM (
        SELECT
            r.projection_id, r.min_slice, r.max_slice, r.handled_until, p.evicted_before, p.mode,
            CASE WHEN r.import_id >= _newest_import THEN r.horizon ELSE least(r.horizon, (
                SELECT min(i.from_timestamp) FROM projections.imports AS i
                WHERE coalesce(i.entity_type = ANY (p.entity_types), TRUE) AND i.import_id > r.import_id
            )) END AS since
        FROM projections.projection_ranges AS r
        INNER JOIN projections.projections AS p ON r.projection_id = p.projection_id
        WHERE (p_projection_ids IS NULL OR r.projection_id = ANY (p_projection_ids)) AND p.journal IS NULL
        -- Looks for imports once for each range, not wherever the answer is used.
        OFFSET 0
    ) AS r;

    RETURN QUERY
    WITH asked AS MATERIALIZED (
        SELECT
            p.projection_id, p.entity_types, p.evicted_before,
            array_agg(r.min_slice ORDER BY r.min_slice) AS min_slices, array_agg(r.since ORDER BY r.min_slice) AS since,
            array_agg(r.until ORDER BY r.min_slice) AS until,
            min(r.since) AS first, min(r.until) AS first_until, max(r.until) AS last_until
        FROM unnest(_ids, _min_slices, _since, _until) AS r (projection_id, min_slice, since, until)
        INNER JOIN projections.projections AS p ON r.projection_id = p.projection_id
        GROUP BY p.projection_id
    ), busy AS MATERIALIZED (
        -- One for each type that a projection reads.
        SELECT a.*, t.entity_type, p.has_parked
        FROM asked AS a
        CROSS JOIN LATERAL unnest(coalesce(a.entity_types, _all)) AS t (entity_type)
        CROSS JOIN LATERAL (
            SELECT FROM projections.events AS e
            WHERE e.entity_type = t.entity_type AND e.db_timestamp >= _first AND e.db_timestamp >= a.first
            LIMIT 1
        ) AS something
        -- By slice, from 1, whether sources are parked; NULL where none is.
        CROSS JOIN LATERAL (
            SELECT CASE WHEN count(*) > 0 THEN ARRAY(
                SELECT s.slice = ANY (array_agg(DISTINCT k.slice::integer)) FROM generate_series(0, 1023) AS s (slice) ORDER BY s.slice
            ) END AS has_parked
            FROM projections.parked_sources AS k WHERE k.projection_id = a.projection_id
        ) AS p
    ), found AS (
        SELECT i.projection_id, n.slice, n.oldest, n.backlog, 0 AS parked, NULL::timestamptz AS parked_since, b.entity_type
        FROM (
            -- Those that stand at one place, as all do that have never run, are counted once; not where sources are parked.
            SELECT array_agg(b.projection_id) AS ids, b.entity_type, b.first_until, b.until, b.min_slices, b.has_parked
            FROM busy AS b
            GROUP BY
                b.entity_type, b.first_until, b.until, b.min_slices, b.has_parked,
                CASE WHEN b.has_parked IS NOT NULL THEN b.projection_id END
        ) AS b
        CROSS JOIN LATERAL (
            SELECT
                CASE WHEN p_by_slice THEN e.slice ELSE b.min_slices[width_bucket(e.slice::integer, b.min_slices)]::smallint END AS slice,
                min(e.db_timestamp) AS oldest, count(*) AS backlog
            FROM projections.events AS e
            WHERE e.entity_type = b.entity_type
            AND e.db_timestamp >= _first
            AND e.db_timestamp > b.first_until
            AND e.db_timestamp > b.until[width_bucket(e.slice::integer, b.min_slices)]
            AND NOT (coalesce(b.has_parked[e.slice + 1], FALSE) AND EXISTS (
                SELECT FROM projections.parked_sources AS k
                WHERE k.projection_id = b.ids[1] AND k.source_id = e.source_id
            ))
            GROUP BY 1
        ) AS n
        CROSS JOIN unnest(b.ids) AS i (projection_id)
        UNION ALL
        SELECT b.projection_id, n.slice, n.oldest, n.backlog, 0, NULL, b.entity_type
        FROM busy AS b
        CROSS JOIN LATERAL (
            WITH behind AS MATERIALIZED (
                -- Sources with unhandled events between the horizon and the newest handled event.
                SELECT s.source_id, s.handled_nr
                FROM (
                    SELECT e.source_id, max(e.seq_nr) AS last_nr, coalesce((
                        SELECT o.seq_nr FROM projections.source_offsets AS o
                        WHERE o.projection_id = b.projection_id AND o.source_id = e.source_id
                    ), 0) AS handled_nr
                    FROM projections.events AS e
                    WHERE e.entity_type = b.entity_type
                    AND e.db_timestamp >= _first
                    AND e.db_timestamp BETWEEN b.first AND b.last_until
                    AND e.db_timestamp >= b.since[width_bucket(e.slice::integer, b.min_slices)]
                    AND e.db_timestamp <= b.until[width_bucket(e.slice::integer, b.min_slices)]
                    GROUP BY e.source_id
                ) AS s
                WHERE s.handled_nr < s.last_nr
                AND NOT EXISTS (
                    SELECT FROM projections.parked_sources AS k
                    WHERE k.projection_id = b.projection_id AND k.source_id = s.source_id
                )
            )
            SELECT
                CASE WHEN p_by_slice THEN e.slice ELSE b.min_slices[width_bucket(e.slice::integer, b.min_slices)]::smallint END AS slice,
                min(e.db_timestamp) AS oldest, count(*) AS backlog
            FROM projections.events AS e INNER JOIN behind AS s ON e.source_id = s.source_id
            WHERE e.entity_type = b.entity_type
            AND e.db_timestamp >= _first
            AND e.db_timestamp BETWEEN b.first AND b.last_until
            AND e.db_timestamp >= b.since[width_bucket(e.slice::integer, b.min_slices)]
            AND e.db_timestamp <= b.until[width_bucket(e.slice::integer, b.min_slices)]
            AND e.seq_nr > s.handled_nr
            AND (s.handled_nr > 0 OR e.db_timestamp >= b.evicted_before)
            GROUP BY 1
        ) AS n
        UNION ALL
        SELECT k.projection_id, (CASE WHEN p_by_slice THEN k.slice ELSE r.min_slice END)::smallint, NULL, 0, count(*), min(k.parked_at), NULL
        FROM projections.parked_sources AS k
        INNER JOIN unnest(_ids, _min_slices, _max_slices) AS r (projection_id, min_slice, max_slice)
            ON k.projection_id = r.projection_id AND k.slice BETWEEN r.min_slice AND r.max_slice
        WHERE p_projection_ids IS NULL OR k.projection_id = ANY (p_projection_ids)
        GROUP BY 1, 2
    )
    SELECT
        f.projection_id, f.slice, greatest(clock_timestamp() - min(f.oldest), INTERVAL '0'), min(f.oldest),
        sum(f.backlog)::bigint, sum(f.parked)::bigint, min(f.parked_since), t.entity_type
    FROM found AS f CROSS JOIN LATERAL (SELECT CASE WHEN p_by_type THEN f.entity_type END AS entity_type) AS t
    GROUP BY f.projection_id, f.slice, t.entity_type ORDER BY f.projection_id, f.slice, t.entity_type;
END;
$$;
