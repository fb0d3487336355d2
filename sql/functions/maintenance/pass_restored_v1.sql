-- Events that come back from an archive are handled by none of those who have passed their time, and by all others whole:
-- without this, a source that becomes active again would fill its gap with them, and one that does not would leave it.
-- The temporary table projections_restored holds the last event of each source; the events may not be visible yet. Where a
-- range has passed the time up to p_to, its sources stand there now at least; parked ones wait as before.
-- Returns the projections that have a range which has not passed: see read_restored_v1.
CREATE OR REPLACE FUNCTION projections.pass_restored_v1(p_to timestamptz)
RETURNS integer[]
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    _projection record;
    _behind integer[] := '{}';
BEGIN
    FOR _projection IN
        SELECT p.projection_id, p.entity_type, (
            SELECT coalesce(bool_and(r.horizon >= p_to), FALSE) FROM projections.projection_ranges AS r
            WHERE r.projection_id = p.projection_id
        ) AS passed
        FROM projections.projections AS p
        WHERE p.entity_type IN (SELECT s.entity_type FROM pg_temp.projections_restored AS s)
        ORDER BY p.projection_id
    LOOP
        IF NOT _projection.passed THEN
            _behind := _behind || _projection.projection_id;
        END IF;
        INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
        SELECT DISTINCT ON (s.source_id) _projection.projection_id, s.source_id, s.slice, s.seq_nr, s.db_timestamp
        FROM pg_temp.projections_restored AS s
        WHERE s.entity_type = _projection.entity_type
        AND EXISTS (
            SELECT FROM projections.projection_ranges AS r
            WHERE r.projection_id = _projection.projection_id AND s.slice BETWEEN r.min_slice AND r.max_slice
            AND r.horizon >= p_to
        )
        AND (
            SELECT k.source_id FROM projections.parked_sources AS k
            WHERE k.projection_id = _projection.projection_id AND k.source_id = s.source_id LIMIT 1
        ) IS NULL
        ORDER BY s.source_id, s.seq_nr DESC
        ON CONFLICT (projection_id, source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp
        WHERE o.seq_nr < excluded.seq_nr;
    END LOOP;
    RETURN _behind;
END;
$$;
