-- How what is wide is compressed: by lz4, where the server was built with it. Arrays of subscriptions that nothing else than
-- pglz could compress are not compressed. docs/decisions/storage.md
-- A partition is given it when it is made; those that are there are changed here, for what is written from now on.
DO $$
DECLARE
    _lz4 CONSTANT boolean := (
        SELECT 'lz4' = ANY (s.enumvals) FROM pg_catalog.pg_settings AS s WHERE s.name = 'default_toast_compression'
    );
    _column record;
BEGIN
    FOR _column IN
        SELECT t.relation, a.attname, a.attcompression, a.attstorage, w.storage
        FROM (
            VALUES
            ('projections.events', 'payload', 'EXTENDED'),
            ('projections.events', 'metadata', 'EXTENDED'),
            ('projections.matches', 'subscription_ids', CASE WHEN _lz4 THEN 'EXTENDED' ELSE 'EXTERNAL' END),
            ('projections.group_retries', 'matches', 'EXTENDED'),
            ('projections.unasked', 'source_ids', 'EXTENDED'),
            ('projections.unasked', 'seq_nrs', 'EXTENDED'),
            ('projections.unasked', 'db_timestamps', 'EXTENDED')
        ) AS w (name, attname, storage)
        CROSS JOIN LATERAL (
            SELECT w.name::regclass AS relation
            UNION ALL
            SELECT i.inhrelid::regclass FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = w.name::regclass
        ) AS t
        INNER JOIN pg_catalog.pg_attribute AS a ON t.relation = a.attrelid AND w.attname = a.attname
        -- Not where it is so already: each change would wait for all who use the table.
        WHERE a.attstorage <> CASE w.storage WHEN 'EXTERNAL' THEN 'e' ELSE 'x' END OR a.attcompression <> CASE WHEN _lz4 THEN 'l' ELSE '' END
        ORDER BY t.relation
    LOOP
        EXECUTE format('ALTER TABLE ONLY %s ALTER %I SET STORAGE %s', _column.relation, _column.attname, _column.storage);
        EXECUTE format(
            'ALTER TABLE ONLY %s ALTER %I SET COMPRESSION %s',
            _column.relation, _column.attname, CASE WHEN _lz4 THEN 'lz4' ELSE 'default' END
        );
    END LOOP;
END;
$$;
