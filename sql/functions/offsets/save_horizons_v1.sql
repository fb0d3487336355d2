-- Stores how far ranges are that have had nothing to handle, many in one statement.
CREATE OR REPLACE FUNCTION projections.save_horizons_v1(
    p_projection_id integer,
    p_min_slices integer[],
    p_epochs bigint[],
    p_horizons timestamptz[],
    p_import_ids bigint[]
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE projections.projection_ranges AS r SET horizon = h.horizon, import_id = h.import_id
    FROM unnest(p_min_slices, p_epochs, p_horizons, p_import_ids) AS h (min_slice, epoch, horizon, import_id)
    WHERE r.projection_id = p_projection_id AND r.min_slice = h.min_slice AND r.epoch = h.epoch
$$;
