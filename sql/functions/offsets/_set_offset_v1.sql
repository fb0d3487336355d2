-- Makes a projection start at a time: events from then on are handled (again), older ones never. Forgets where
-- sources stood and what was parked, and takes the ranges from their owners, who start again.
CREATE OR REPLACE FUNCTION projections._set_offset_v1(p_projection_id integer, p_from timestamptz)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM projections._lock_inline_v1(p_projection_id);
    -- Whoever cuts ranges or evicts offsets has this, too: what is reset below must be what they leave.
    PERFORM FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    UPDATE projections.projection_ranges AS r
    SET
        epoch = r.epoch + 1, owner = NULL, horizon = p_from, handled_at = NULL, handled_until = '1970-01-01T00:00:00Z',
        failures = 0, error = NULL, restarts_at = NULL,
        -- Of a journal elsewhere, those that it has not read yet are found by it, as ever.
        import_id = CASE
            WHEN p.journal IS NULL THEN coalesce((SELECT max(i.import_id) FROM projections.imports AS i), 0) ELSE r.import_id
        END
    FROM projections.projections AS p
    WHERE r.projection_id = p_projection_id AND p.projection_id = p_projection_id;
    DELETE FROM projections.source_offsets AS o WHERE o.projection_id = p_projection_id;
    DELETE FROM projections.parked_sources AS k WHERE k.projection_id = p_projection_id;
    UPDATE projections.projections AS p SET evicted_before = p_from WHERE p.projection_id = p_projection_id;
END;
$$;
