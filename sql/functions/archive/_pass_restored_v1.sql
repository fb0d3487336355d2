-- Events that come back from an archive are handled by none of those who have passed their time, and by all others whole:
-- without this, a source that becomes active again would fill its gap with them, and one that does not would leave it.
-- Given the last event of each of some sources, in a time up to p_to, they stand there now at least, in those slices of a
-- projection that have passed (see _passed_ranges_v1). Parked ones wait as before. A page at a time, committed before the events are
-- visible: a worker whose batch has one of the sources waits for a page, not for the restore.
CREATE OR REPLACE FUNCTION projections._pass_restored_v1(
    p_projection_id integer, p_passed int4multirange, p_to timestamptz,
    p_source_ids text[], p_slices smallint[], p_seq_nrs bigint[], p_timestamps timestamptz[]
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_nestloop = on
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    -- Whoever sets the projection back has this, too: it forgets what is stored here, or is seen below.
    PERFORM FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR SHARE;
    -- The only range of a projection looks no offsets up while it catches up with old events (_may_evict_v1), and would not see those that
    -- are stored here. So it loses its owner, and begins again; a range that is not behind looks offsets up. The range is locked before the
    -- offsets, in the order of a batch.
    UPDATE projections.projection_ranges AS r SET epoch = r.epoch + 1, owner = NULL
    WHERE r.projection_id = p_projection_id AND r.min_slice = 0 AND r.max_slice = 1023
    AND r.horizon < clock_timestamp() - interval '1 minute';
    INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
    SELECT p_projection_id, s.source_id, s.slice, s.seq_nr, s.db_timestamp
    FROM unnest(p_source_ids, p_slices, p_seq_nrs, p_timestamps) AS s (source_id, slice, seq_nr, db_timestamp)
    WHERE s.slice::integer <@ p_passed
    AND (
        SELECT greatest(r.horizon, r.handled_until) >= p_to FROM projections.projection_ranges AS r
        WHERE r.projection_id = p_projection_id AND r.min_slice <= s.slice ORDER BY r.min_slice DESC LIMIT 1
    )
    AND (
        SELECT k.source_id FROM projections.parked_sources AS k
        WHERE k.projection_id = p_projection_id AND k.source_id = s.source_id COLLATE "C" LIMIT 1
    ) IS NULL
    -- An older source without an offset counts as handled, perhaps further than here.
    AND (
        s.db_timestamp >= (SELECT p.evicted_before FROM projections.projections AS p WHERE p.projection_id = p_projection_id)
        OR (
            SELECT k.source_id FROM projections.source_offsets AS k
            WHERE k.projection_id = p_projection_id AND k.source_id = s.source_id COLLATE "C" LIMIT 1
        ) IS NOT NULL
    )
    ORDER BY s.source_id COLLATE "C"
    ON CONFLICT (projection_id, source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp
    WHERE o.seq_nr < excluded.seq_nr;
END;
$$;
