-- What keeps each closed partition, or one of that name; one that nothing keeps is dropped by the next run of maintenance.
-- Kinds: retention (its time is not over), archive (it must be archived first), and those of _retention_holders_v1.
CREATE OR REPLACE FUNCTION projections.partition_holders_v1(p_name text DEFAULT NULL)
RETURNS TABLE (table_name text, name text, kind text, holder text, reason text)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET timezone = 'UTC'
AS $$
    WITH closed AS (
        SELECT
            p.table_name, p.name, p.from_timestamp, p.to_timestamp, s.retention, s.archive_first,
            p.to_timestamp > clock_timestamp() - s.retention AS young
        FROM projections.partitions AS p
        INNER JOIN projections.partition_settings AS s ON p.table_name = s.table_name
        WHERE p.to_timestamp <= clock_timestamp() AND (p_name IS NULL OR p.name = p_name)
    )
    SELECT c.table_name, c.name, 'retention', '', CASE
        WHEN c.retention IS NULL THEN 'kept forever' ELSE format('kept until %s', c.to_timestamp + c.retention)
    END
    FROM closed AS c WHERE c.retention IS NULL OR c.young
    UNION ALL
    SELECT c.table_name, c.name, 'archive', '', 'to be archived first'
    FROM closed AS c WHERE c.archive_first
    UNION ALL
    SELECT c.table_name, c.name, h.kind, h.holder, h.reason
    FROM closed AS c
    INNER JOIN projections._retention_holders_v1() AS h
        ON c.table_name = h.table_name AND h.since < c.to_timestamp
        AND (c.from_timestamp IS NULL OR h.until >= c.from_timestamp)
    ORDER BY 1, 2, 3, 4
$$;
