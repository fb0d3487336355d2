-- The partitions that should be made: the coming p_ahead intervals, the one that runs as long as the default partition
-- holds nothing of it, and closed intervals whose events sit in the default partition because nobody made one in time.
-- Where partitions of another interval exist already, only the time that they leave free.
CREATE OR REPLACE FUNCTION projections.missing_partitions_v1(
    p_interval interval DEFAULT '1 day', p_ahead integer DEFAULT 7
)
RETURNS TABLE (from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE sql
STABLE
-- A day has 24 hours here, whatever the caller's time zone does to its clocks.
SET timezone = 'UTC'
SET search_path = pg_catalog, pg_temp
AS $$
    WITH running AS (
        SELECT date_bin(p_interval, clock_timestamp(), '1970-01-01T00:00:00Z') AS since
    ), wanted AS (
        SELECT r.since + n * p_interval AS at
        FROM running AS r CROSS JOIN generate_series(0, p_ahead) AS n
        WHERE n > 0 OR NOT EXISTS (SELECT FROM projections.events_default AS e WHERE e.db_timestamp >= r.since)
        UNION
        SELECT date_bin(p_interval, e.db_timestamp, '1970-01-01T00:00:00Z')
        FROM running AS r INNER JOIN projections.events_default AS e ON e.db_timestamp < r.since
    ), taken AS (
        SELECT coalesce(range_agg(tstzrange(p.from_timestamp, p.to_timestamp)), '{}') AS times
        FROM projections.partitions AS p
        WHERE p.from_timestamp IS NOT NULL OR p.to_timestamp IS NOT NULL
    )
    SELECT lower(free.time), upper(free.time)
    FROM wanted AS w
    CROSS JOIN taken AS t
    CROSS JOIN LATERAL unnest(tstzmultirange(tstzrange(w.at, w.at + p_interval)) - t.times) AS free (time)
    ORDER BY 1
$$;
