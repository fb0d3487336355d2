-- What maintenance has to do, in the order in which it is done: partitions to create, and partitions to drop.
CREATE OR REPLACE FUNCTION projections._maintenance_steps_v1()
RETURNS TABLE (step text, table_name text, name text, from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _old CONSTANT text[] := ARRAY(
        SELECT p.name FROM projections.partitions AS p
        INNER JOIN projections.partition_settings AS s ON p.table_name = s.table_name
        WHERE p.to_timestamp <= clock_timestamp() - s.retention
    );
BEGIN
    RETURN QUERY
    SELECT 'create', s.table_name, NULL::text, m.from_timestamp, m.to_timestamp
    FROM projections.partition_settings AS s
    CROSS JOIN LATERAL projections._missing_partitions_v1(p_table => s.table_name) AS m
    ORDER BY s.table_name, m.to_timestamp;
    -- Only where retention lets something go is it worth while to ask who needs it.
    IF cardinality(_old) > 0 THEN
        RETURN QUERY
        SELECT 'drop', p.table_name, p.name, p.from_timestamp, p.to_timestamp
        FROM projections.partitions AS p
        LEFT JOIN projections.partition_holders_v1() AS h ON p.table_name = h.table_name AND p.name = h.name
        WHERE p.name = ANY (_old) AND h.name IS NULL
        ORDER BY p.table_name, p.to_timestamp;
    END IF;
END;
$$;
