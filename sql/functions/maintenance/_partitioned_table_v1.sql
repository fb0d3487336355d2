-- A table that is partitioned by time: the column that it goes by, and its default partition, NULL where somebody has taken
-- it away. Raises PJ070 for any other.
CREATE OR REPLACE FUNCTION projections._partitioned_table_v1(p_table text)
RETURNS TABLE (parent regclass, column_name name, default_partition regclass)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT t.partrelid::regclass, a.attname, nullif(t.partdefid, 0)::regclass
    FROM pg_catalog.pg_partitioned_table AS t
    INNER JOIN pg_catalog.pg_attribute AS a ON t.partrelid = a.attrelid AND t.partattrs[0] = a.attnum
    INNER JOIN projections.partition_settings AS s ON s.table_name = p_table
    WHERE t.partrelid = to_regclass(format('projections.%I', p_table));
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not a table with partitions in time', quote_literal(p_table)
        USING ERRCODE = 'PJ070', HINT = (
            SELECT format('There are %s.', string_agg(s.table_name, ', ' ORDER BY s.table_name)) FROM projections.partition_settings AS s
        );
    END IF;
END;
$$;
