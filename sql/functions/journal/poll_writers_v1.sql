-- What is in flight, in one statement: the database's time, then the transactions that hold the append lock, and the
-- imports since a known one. Call it outside a transaction, and read events only in later statements:
-- the time must be older than the list, and the list older than what is read.
-- A holder without a process is a prepared transaction; it is marked by a leading 'p'.
CREATE OR REPLACE FUNCTION projections.poll_writers_v1(p_after_import_id bigint)
RETURNS TABLE (polled_at timestamptz, holders text[], import_id bigint, imported_from timestamptz, imported_type text)
LANGUAGE sql
VOLATILE
AS $$
    SELECT
        now(),
        ARRAY(
            SELECT CASE WHEN l.pid IS NULL THEN 'p' ELSE '' END || l.virtualtransaction
            FROM pg_catalog.pg_locks AS l
            WHERE l.locktype = 'relation'
            AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
            AND l.relation = 'projections.sources'::regclass
            AND l.mode = 'RowExclusiveLock'
            AND l.granted
        ),
        i.import_id, i.from_timestamp, i.entity_type
    FROM (SELECT) AS always
    LEFT JOIN projections.imports AS i ON i.import_id > p_after_import_id
    ORDER BY i.import_id
$$;
