-- Cuts the slices of a projection again, keeping its progress: a range made of parts starts at the oldest horizon among
-- them, and the offsets by source drop what the others had done. Every owner loses its claim, and the new ranges are assigned.
CREATE OR REPLACE FUNCTION projections._set_ranges_v1(p_projection_id integer, p_min_slices integer[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _before integer[];
BEGIN
    PERFORM FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    PERFORM FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id ORDER BY r.min_slice FOR UPDATE;
    _before := ARRAY(
        SELECT r.min_slice::integer FROM projections.projection_ranges AS r
        WHERE r.projection_id = p_projection_id ORDER BY r.min_slice
    );
    IF p_min_slices = _before THEN
        RETURN;
    END IF;
    WITH old AS (
        DELETE FROM projections.projection_ranges AS r WHERE r.projection_id = p_projection_id RETURNING r.*
    ), cut AS (
        SELECT
            w.min_slice, w.max_slice, max(o.epoch) OVER () + 1 AS epoch,
            o.min_slice AS part, o.assigned_to, o.horizon, o.import_id, o.handled_until, o.handled_at, o.journal_life,
            -- A part that is split leaves its count to the first piece: the sum stays.
            CASE WHEN o.min_slice BETWEEN w.min_slice AND w.max_slice THEN o.handled ELSE 0 END AS handled
        FROM projections._cut_v1(p_min_slices) AS w INNER JOIN old AS o ON w.min_slice <= o.max_slice AND o.min_slice <= w.max_slice
    )
    INSERT INTO projections.projection_ranges (
        projection_id, min_slice, max_slice, epoch, assigned_to, horizon, import_id, handled_until, handled_at, handled, journal_life
    )
    SELECT
        p_projection_id, c.min_slice, c.max_slice, min(c.epoch), (array_agg(c.assigned_to ORDER BY c.part))[1],
        min(c.horizon), min(c.import_id), max(c.handled_until), max(c.handled_at), sum(c.handled),
        -- Of parts that fit different lives, the server's name is left: then the offsets are compared again.
        CASE WHEN min(c.journal_life) = max(c.journal_life) THEN min(c.journal_life) ELSE split_part(min(c.journal_life), '.', 1) || '.' END
    FROM cut AS c GROUP BY c.min_slice, c.max_slice;
    PERFORM projections._assign_ranges_v1(p_projection_id);
    PERFORM projections._note_range_change_v1(
        p_projection_id, 'rescaled', cardinality(p_min_slices), cardinality(_before), NULL, NULL
    );
END;
$$;
