-- Raises 22023 unless slices, as the first of one range each, cut 0..1023 without a gap or an overlap.
CREATE OR REPLACE FUNCTION projections.check_cut_v1(p_min_slices integer[])
RETURNS void
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_min_slices IS DISTINCT FROM ARRAY(
        SELECT DISTINCT w.min_slice FROM unnest(p_min_slices) AS w (min_slice)
        WHERE w.min_slice BETWEEN 0 AND 1023 ORDER BY w.min_slice
    ) OR p_min_slices[1] IS DISTINCT FROM 0 THEN
        RAISE EXCEPTION 'ranges must begin at slice 0 and ascend to 1023 at most, not %', p_min_slices
        USING ERRCODE = '22023';
    END IF;
END;
$$;
