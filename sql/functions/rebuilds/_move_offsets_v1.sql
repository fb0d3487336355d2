-- Makes the rebuilt slices of a projection stand at the fence: the offsets of their sources are those of the rebuild, and
-- the owners of the ranges lose their claims and begin there. Only what differs is written: between the fence and now
-- few sources have moved, and everybody waits for this.
CREATE OR REPLACE FUNCTION projections._move_offsets_v1(p_rebuild projections.rebuilds)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_nestloop = off
AS $$
DECLARE
    _whole CONSTANT boolean := (p_rebuild.min_slice, p_rebuild.max_slice) = (0, 1023);
BEGIN
    -- This waits for batches in flight, and from here on no other can commit.
    UPDATE projections.projection_ranges AS r
    SET
        epoch = r.epoch + 1, owner = NULL, failures = 0, error = NULL, restarts_at = NULL,
        -- Part of a range goes back to the fence, and the offsets of the other sources drop what they have done.
        horizon = CASE WHEN _whole THEN p_rebuild.fence ELSE least(r.horizon, p_rebuild.fence) END,
        import_id = CASE WHEN _whole THEN p_rebuild.import_id ELSE least(r.import_id, p_rebuild.import_id) END,
        handled_until = CASE WHEN _whole THEN p_rebuild.fence ELSE r.handled_until END,
        -- In any other life of a journal elsewhere, what the rebuild has handled may be lost: the owner compares.
        journal_life = CASE
            WHEN _whole OR r.journal_life = p_rebuild.journal_life THEN p_rebuild.journal_life ELSE r.journal_life || '+'
        END
    WHERE r.projection_id = p_rebuild.projection_id
    AND r.max_slice >= p_rebuild.min_slice AND r.min_slice <= p_rebuild.max_slice;
    -- Where the fence is older than what offsets were kept for: what is written below begins there, and what was imported
    -- since, which is for the live workers, must not count as handled.
    IF _whole THEN
        UPDATE projections.projections AS p
        SET evicted_before = least(p.evicted_before, p_rebuild.fence, (
            SELECT min(i.from_timestamp) FROM projections.imports AS i
            WHERE p.journal IS NULL AND coalesce(i.entity_type = ANY (p_rebuild.entity_types), TRUE)
            AND i.import_id > p_rebuild.import_id
        ))
        WHERE p.projection_id = p_rebuild.projection_id;
    END IF;
    DELETE FROM projections.parked_sources AS k
    WHERE k.projection_id = p_rebuild.projection_id AND k.slice BETWEEN p_rebuild.min_slice AND p_rebuild.max_slice;
    EXECUTE format(
        'DELETE FROM projections.source_offsets AS o WHERE o.projection_id = $1 AND o.slice BETWEEN $2 AND $3 '
        'AND NOT EXISTS (SELECT FROM projections_rebuild_%s._last AS n WHERE n.source_id = o.source_id)',
        p_rebuild.rebuild_id
    ) USING p_rebuild.projection_id, p_rebuild.min_slice, p_rebuild.max_slice;
    EXECUTE format(
        'UPDATE projections.source_offsets AS o SET seq_nr = n.seq_nr, db_timestamp = n.db_timestamp '
        'FROM projections_rebuild_%s._last AS n '
        'WHERE o.projection_id = $1 AND o.source_id = n.source_id AND o.seq_nr <> n.seq_nr',
        p_rebuild.rebuild_id
    ) USING p_rebuild.projection_id;
    -- An older source without an offset counts as handled. In a journal of another system, its last event may be older than
    -- one before that, which is read again.
    EXECUTE format(
        'INSERT INTO projections.source_offsets (projection_id, source_id, slice, seq_nr, db_timestamp) '
        'SELECT $1, n.source_id, n.slice, n.seq_nr, n.db_timestamp FROM projections_rebuild_%s._last AS n '
        'WHERE coalesce(n.newest, n.db_timestamp) >= (SELECT p.evicted_before FROM projections.projections AS p WHERE p.projection_id = $1) '
        'AND NOT EXISTS (SELECT FROM projections.source_offsets AS o WHERE o.projection_id = $1 AND o.source_id = n.source_id)',
        p_rebuild.rebuild_id
    ) USING p_rebuild.projection_id;
    UPDATE projections.projections AS p SET version = p_rebuild.version, entity_types = p_rebuild.entity_types
    WHERE p.projection_id = p_rebuild.projection_id;
END;
$$;
