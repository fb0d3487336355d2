-- The ranges that begin at some slices. Raises 22023 unless they cut 0..1023 without a gap or an overlap.
CREATE OR REPLACE FUNCTION projections._cut_v1(p_min_slices integer[])
RETURNS TABLE (min_slice integer, max_slice integer)
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF p_min_slices IS DISTINCT FROM ARRAY(
        SELECT DISTINCT w.slice FROM unnest(p_min_slices) AS w (slice) WHERE w.slice BETWEEN 0 AND 1023 ORDER BY w.slice
    ) OR p_min_slices[1] IS DISTINCT FROM 0 THEN
        RAISE EXCEPTION 'ranges must begin at slice 0 and ascend to 1023 at most, not %', p_min_slices
        USING ERRCODE = '22023';
    END IF;
    RETURN QUERY
    SELECT w.slice, coalesce(lead(w.slice) OVER (ORDER BY w.slice), 1024) - 1 FROM unnest(p_min_slices) AS w (slice);
END;
$$;
