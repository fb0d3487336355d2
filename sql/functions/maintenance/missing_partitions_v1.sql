-- The partitions that should be made: from the start of the coming interval, p_ahead of them, and closed intervals whose
-- events sit in the default partition because nobody made one in time.
CREATE OR REPLACE FUNCTION projections.missing_partitions_v1(
    p_interval interval DEFAULT '1 day', p_ahead integer DEFAULT 7
)
RETURNS TABLE (from_timestamp timestamptz, to_timestamp timestamptz)
LANGUAGE sql
STABLE
AS $$
    WITH wanted AS (
        SELECT date_bin(p_interval, clock_timestamp(), '1970-01-01T00:00:00Z') + n * p_interval AS at
        FROM generate_series(1, p_ahead) AS n
        UNION
        SELECT date_bin(p_interval, e.db_timestamp, '1970-01-01T00:00:00Z')
        FROM projections.events_default AS e
        WHERE e.db_timestamp < date_bin(p_interval, clock_timestamp(), '1970-01-01T00:00:00Z')
    )
    SELECT w.at, w.at + p_interval
    FROM wanted AS w
    WHERE NOT EXISTS (
        SELECT FROM projections.partitions AS p
        WHERE p.from_timestamp < w.at + p_interval AND p.to_timestamp > w.at
    )
    ORDER BY w.at
$$;
