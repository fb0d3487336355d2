-- What is in flight, in one statement: the database's time, then the transactions that hold the append lock, the imports
-- since a known one, of some entity types (NULL: all) the newest event after a time, and the database's generation. Call it outside
-- a transaction, and read events only in later statements: the time must be older than the list, and the list older than
-- what is read. (So newest_events is a hint for who has nothing to do, never a reason to move on.)
-- A holder without a process is a prepared transaction; it is marked by a leading 'p'.
-- replayed_until is for a standby, and null elsewhere: what was committed on the primary by then is here. The standby's own
-- clock says nothing of that, and the locks of the primary are not seen there.
CREATE OR REPLACE FUNCTION projections._poll_writers_v1(
    p_after_import_id bigint, p_entity_types text[], p_after timestamptz[]
)
RETURNS TABLE (
    polled_at timestamptz,
    holders text[],
    import_ids bigint[],
    import_types text[],
    imported_from timestamptz[],
    newest_events timestamptz[],
    timeline integer,
    started_at timestamptz,
    wal_position bigint,
    system_identifier bigint,
    replayed_until timestamptz
)
LANGUAGE plpgsql
VOLATILE
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT
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
        i.ids, i.types, i.since,
        CASE WHEN cardinality(p_entity_types) > 0 THEN projections._newest_events_v1(p_entity_types, p_after) ELSE '{}' END,
        g.timeline, g.started_at, g.wal_position, g.system_identifier,
        projections._replayed_until_v1()
    FROM (
        SELECT
            coalesce(array_agg(i.import_id), '{}') AS ids, coalesce(array_agg(i.entity_type), '{}') AS types,
            coalesce(array_agg(i.from_timestamp), '{}') AS since
        FROM projections.imports AS i WHERE i.import_id > p_after_import_id
    ) AS i
    CROSS JOIN projections.generation_v1() AS g;
END;
$$;
