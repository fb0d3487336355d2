-- Makes a projection inline or live: from the commit on, all that append and all workers go by it. The ranges are taken from their
-- owners, who start again. Waits for transactions that handle events inline.
CREATE OR REPLACE FUNCTION projections._set_mode_v1(p_projection_id integer, p_mode text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM projections._lock_inline_v1(p_projection_id);
    UPDATE projections.projections AS p SET mode = p_mode WHERE p.projection_id = p_projection_id AND p.mode <> p_mode;
    IF FOUND THEN
        UPDATE projections.projection_ranges AS r
        SET
            epoch = r.epoch + 1, owner = NULL,
            -- Of a live projection, nothing after it is handled (slice_lag_v1).
            handled_until = greatest(r.handled_until, (
                SELECT max(o.db_timestamp) FROM projections.source_offsets AS o
                WHERE o.projection_id = r.projection_id AND o.slice BETWEEN r.min_slice AND r.max_slice
            ))
        WHERE r.projection_id = p_projection_id;
    END IF;
END;
$$;
