-- The bounds of a partition in time, as the catalogue has them; NULL for one that is not there, and both for the default
-- partition. The catalogue tells them as text alone: in other styles of dates it has abbreviations of time zones, which
-- are ambiguous.
CREATE OR REPLACE FUNCTION projections._partition_bounds_v1(p_partition oid)
RETURNS TABLE (from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE sql
STABLE
ROWS 1
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
SET datestyle = 'ISO'
SET timezone = 'UTC'
AS $$
    SELECT
        (regexp_match(b.bound, 'FROM \(''([^'']+)''\)'))[1]::timestamptz,
        (regexp_match(b.bound, 'TO \(''([^'']+)''\)'))[1]::timestamptz
    FROM (
        SELECT pg_get_expr(c.relpartbound, c.oid) AS bound FROM pg_catalog.pg_class AS c WHERE c.oid = p_partition
    ) AS b
$$;
