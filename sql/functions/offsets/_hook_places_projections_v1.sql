-- Who needs a partition now, wherever it stood before: projections and rebuilds.
CREATE OR REPLACE FUNCTION projections._hook_places_projections_v1(p_partition projections.partitions)
RETURNS TABLE (holder text, reason text, range text, place bigint)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.holder, p.reason, p.holder, NULL::bigint FROM projections._projection_holders_v1() AS p
    WHERE p_partition.table_name = 'events' AND p.since < p_partition.to_timestamp
    AND (p_partition.from_timestamp IS NULL OR p.until >= p_partition.from_timestamp)
$$;
