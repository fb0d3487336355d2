-- Replaces the payloads of erased messages by null in a table of the log that is being restored, before anybody sees it, and returns how
-- many those were. Whoever erases one meanwhile waits until this transaction has ended, and finds what it has brought back.
CREATE OR REPLACE FUNCTION projections._erase_restored_v1(p_table regclass)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    _erased bigint;
BEGIN
    LOCK TABLE projections.erased_messages IN SHARE MODE;
    EXECUTE format(
        'UPDATE %s AS e SET payload = ''null'' FROM projections.erased_messages AS x '
        'WHERE e.event_id = x.event_id AND e.entity_type = ''webhook-message'' AND e.payload::text <> ''null'' '
        'AND CASE WHEN json_typeof(e.metadata) = ''object'' THEN x.tenant IN ('''', e.metadata ->> ''tenant'') END', p_table
    );
    GET DIAGNOSTICS _erased = ROW_COUNT;
    RETURN _erased;
END;
$$;
