-- Removes where rows of the delivery log were that have left with their partition: what is older than the oldest row that is
-- there, and than the retention. A limited number of a kind, the rest at the next call; returns how many.
CREATE OR REPLACE FUNCTION projections._forget_logged_ids_v1(p_limit integer DEFAULT 10000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _kind text;
    _before timestamptz;
    _removed integer;
    _all integer := 0;
BEGIN
    FOR _kind, _before IN
        SELECT o.kind, least(o.oldest, clock_timestamp() - s.retention)
        FROM (
            SELECT 'event', (SELECT min(e.event_time) FROM projections.webhook_events AS e)
            UNION ALL
            SELECT 'attempt', (SELECT min(a.attempted_at) FROM projections.webhook_attempts AS a)
        ) AS o (kind, oldest)
        INNER JOIN projections.partition_settings AS s ON s.table_name = 'webhook_' || o.kind || 's'
        WHERE s.retention IS NOT NULL
    LOOP
        DELETE FROM projections.webhook_log_ids AS i
        WHERE i.ctid = ANY (ARRAY(
            SELECT o.ctid FROM projections.webhook_log_ids AS o
            WHERE o.kind = _kind AND o.row_time < _before
            ORDER BY o.row_time LIMIT p_limit
            FOR UPDATE SKIP LOCKED
        ));
        GET DIAGNOSTICS _removed = ROW_COUNT;
        _all := _all + _removed;
    END LOOP;
    RETURN _all;
END;
$$;
