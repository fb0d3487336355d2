-- The partitions of a table that should be made: the coming p_ahead intervals, the one that runs as long as the default
-- partition holds nothing of it, and closed intervals whose rows sit in the default partition because nobody made one in
-- time. Where partitions of another interval exist already, only the time that they leave free. What is not given is
-- taken from partition_settings. A closed interval with more than p_most_rows in the default partition is cut, at full seconds: no
-- transaction moves many more.
CREATE OR REPLACE FUNCTION projections._missing_partitions_v1(
    p_interval interval DEFAULT NULL, p_ahead integer DEFAULT NULL, p_table text DEFAULT 'events',
    p_most_rows integer DEFAULT 500000
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
            SELECT date_bin($1, d.at, '1970-01-01T00:00:00Z') AS at, count(*) AS rows FROM %1$s AS d (at) GROUP BY 1
        ), cuts AS (
            SELECT DISTINCT n.interval, date_trunc('second', n.at) AS at
            FROM (
                SELECT w.at AS interval, d.at, row_number() OVER (PARTITION BY w.at ORDER BY d.at) AS number
                FROM waiting AS w
                INNER JOIN %1$s AS d (at) ON w.at = date_bin($1, d.at, '1970-01-01T00:00:00Z')
                WHERE w.at < $2 AND w.rows > $5
            ) AS n
            WHERE n.number %% $5 = 0 AND n.at >= n.interval + interval '1 second'
        ), wanted AS (
            SELECT $2 + n * $1 AS at
            FROM generate_series(0, $3) AS n
            WHERE n > 0 OR NOT EXISTS (SELECT FROM waiting AS w WHERE w.at >= $2)
            UNION
            SELECT w.at FROM waiting AS w WHERE w.at < $2
        ), parts AS (
            SELECT b.at, coalesce(lead(b.at) OVER (PARTITION BY b.interval ORDER BY b.at), b.interval + $1) AS until
            FROM (SELECT w.at AS interval, w.at FROM wanted AS w UNION ALL SELECT c.interval, c.at FROM cuts AS c) AS b
        ), taken AS (
            SELECT coalesce(range_agg(tstzrange(p.from_timestamp, p.to_timestamp)), '{}') AS times
            FROM projections.partitions AS p
            WHERE p.table_name = $4 AND NOT p.is_default
        )
        SELECT lower(free.time), upper(free.time)
        FROM parts AS w
        CROSS JOIN taken AS t
        CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(w.at, w.until)) - t.times) AS free (time)
        ORDER BY 1
        $query$,
        CASE
            WHEN _table.default_partition IS NULL THEN '(SELECT NULL::timestamptz LIMIT 0)'
            ELSE format('(SELECT e.%I FROM %s AS e)', _table.column_name, _table.default_partition)
        END
    ) USING _settings.partition_interval, _running, coalesce(p_ahead, _settings.ahead), p_table, p_most_rows;
END;
$$;
