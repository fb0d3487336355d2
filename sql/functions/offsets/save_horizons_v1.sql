-- Stores how far ranges are that have had nothing to handle, many in one statement; returns those that it has stored. The
-- others are not as their owner remembers them. The ranges wait for this, with what they have to store: a row that somebody
-- holds locked must not keep the others waiting, so that nothing is stored then (55P03), and it is tried again later.
CREATE OR REPLACE FUNCTION projections.save_horizons_v1(
    p_projection_id integer,
    p_min_slices integer[],
    p_epochs bigint[],
    p_owner text,
    p_commits bigint[],
    p_answered bigint,
    p_timeline integer,
    p_started_at timestamptz,
    p_horizons timestamptz[],
    p_import_ids bigint[]
)
RETURNS TABLE (min_slice smallint)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '1s'
AS $$
    UPDATE projections.projection_ranges AS r
    SET
        horizon = h.horizon, import_id = h.import_id, commits = r.commits + 1,
        -- A range that moves on has recovered.
        failures = CASE WHEN h.horizon > r.horizon THEN 0 ELSE r.failures END,
        error = CASE WHEN h.horizon > r.horizon THEN NULL ELSE r.error END,
        restarts_at = CASE WHEN h.horizon > r.horizon THEN NULL ELSE r.restarts_at END
    FROM (
        SELECT n.min_slice, n.horizon, n.import_id
        FROM projections.projection_ranges AS f
        INNER JOIN unnest(p_min_slices, p_epochs, p_commits, p_horizons, p_import_ids)
            AS n (min_slice, epoch, commits, horizon, import_id)
            ON f.min_slice = n.min_slice AND f.epoch = n.epoch AND f.commits = n.commits
        WHERE f.projection_id = p_projection_id AND f.owner = p_owner
        AND (SELECT projections._same_generation_v1(p_owner, p_answered, p_timeline, p_started_at))
        ORDER BY f.min_slice
        FOR UPDATE OF f  -- in the order in which a cut takes them
    ) AS h
    WHERE r.projection_id = p_projection_id AND r.min_slice = h.min_slice
    RETURNING r.min_slice
$$;
