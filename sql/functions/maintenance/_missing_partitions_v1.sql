-- The partitions of a table that should be made: the coming p_ahead intervals, the one that runs as long as the default
-- partition holds nothing of it, and closed intervals whose rows sit in the default partition because nobody made one in
-- time. Where partitions of another interval exist already, only the time that they leave free. What is not given is
-- taken from partition_settings.
CREATE OR REPLACE FUNCTION projections._missing_partitions_v1(
    p_interval interval DEFAULT NULL, p_ahead integer DEFAULT NULL, p_table text DEFAULT 'events'
)
RETURNS TABLE (from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE plpgsql
STABLE
-- A day has 24 hours here, whatever the caller's time zone does to its clocks.
SET timezone = 'UTC'
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _table record;
    _settings projections.partition_settings;
    _running timestamptz;
BEGIN
    SELECT t.* INTO _table FROM projections._partitioned_table_v1(p_table) AS t;
    SELECT s.* INTO _settings FROM projections.partition_settings AS s WHERE s.table_name = p_table;
    _settings.partition_interval := coalesce(p_interval, _settings.partition_interval);
    _running := date_bin(_settings.partition_interval, clock_timestamp(), '1970-01-01T00:00:00Z');
    RETURN QUERY EXECUTE format(
        $query$
        WITH waiting AS (
            SELECT DISTINCT date_bin($1, d.at, '1970-01-01T00:00:00Z') AS at FROM %s AS d (at)
        ), wanted AS (
            SELECT $2 + n * $1 AS at
            FROM generate_series(0, $3) AS n
            WHERE n > 0 OR NOT EXISTS (SELECT FROM waiting AS w WHERE w.at >= $2)
            UNION
            SELECT w.at FROM waiting AS w WHERE w.at < $2
        ), taken AS (
            SELECT coalesce(range_agg(tstzrange(p.from_timestamp, p.to_timestamp)), '{}') AS times
            FROM projections.partitions AS p
            WHERE p.table_name = $4 AND NOT p.is_default
        )
        SELECT lower(free.time), upper(free.time)
        FROM wanted AS w
        CROSS JOIN taken AS t
        CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(w.at, w.at + $1)) - t.times) AS free (time)
        ORDER BY 1
        $query$,
        CASE
            WHEN _table.default_partition IS NULL THEN '(SELECT NULL::timestamptz LIMIT 0)'
            ELSE format('(SELECT e.%I FROM %s AS e)', _table.column_name, _table.default_partition)
        END
    ) USING _settings.partition_interval, _running, coalesce(p_ahead, _settings.ahead), p_table;
END;
$$;
