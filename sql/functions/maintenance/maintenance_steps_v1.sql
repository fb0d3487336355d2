-- What maintenance has to do, in the order in which it is done: partitions to create, and partitions to drop.
CREATE OR REPLACE FUNCTION projections.maintenance_steps_v1()
RETURNS TABLE (step text, table_name text, name text, from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.step, s.table_name, s.name, s.from_timestamp, s.to_timestamp
    FROM (
        SELECT 'create' AS step, t.table_name, NULL AS name, m.from_timestamp, m.to_timestamp
        FROM projections.partition_settings AS t
        CROSS JOIN LATERAL projections.missing_partitions_v1(p_table => t.table_name) AS m
        UNION ALL
        SELECT 'drop', p.table_name, p.name, p.from_timestamp, p.to_timestamp
        FROM projections.partitions AS p
        WHERE p.to_timestamp <= clock_timestamp()
        AND EXISTS (SELECT FROM projections.partition_settings AS t WHERE t.table_name = p.table_name AND t.retention IS NOT NULL)
        AND NOT EXISTS (SELECT FROM projections.partition_holders_v1() AS h WHERE h.table_name = p.table_name AND h.name = p.name)
    ) AS s
    ORDER BY s.step, s.table_name, s.to_timestamp
$$;
