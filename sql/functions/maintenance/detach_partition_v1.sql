-- Detaches a closed partition of the log if it is what was archived of it: that many events with that checksum, as `projections archive
-- export` prints them. Compared under the lock that it is detached under: what was changed since stays. The table is left, detached.
-- Run it in a transaction of its own, at READ COMMITTED, as the owner of the schema, with lock_timeout set as for _create_partition_v1.
-- PJ070: there is no such partition. PJ072: it is not what was archived.
CREATE OR REPLACE FUNCTION projections.detach_partition_v1(p_name text, p_events bigint, p_content numeric)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _partition projections.partitions;
BEGIN
    -- What others have committed before the locks below were had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'detaching a partition needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    SELECT p.* INTO _partition FROM projections.partitions AS p
    WHERE p.table_name = 'events' AND p.name = p_name AND p.to_timestamp <= clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not a partition whose time is over', quote_literal(p_name) USING ERRCODE = 'PJ070';
    END IF;
    PERFORM projections._check_archived_v1(_partition, p_events, p_content);
    PERFORM projections._lock_within_v1(ARRAY['ONLY projections.events IN ACCESS EXCLUSIVE MODE'] || ARRAY(
        SELECT p.relation::regclass || ' IN ACCESS EXCLUSIVE MODE' FROM projections.partitions AS p
        WHERE p.table_name = 'events' AND (p.is_default OR p.name = p_name)
    ));
    EXECUTE format('ALTER TABLE projections.events DETACH PARTITION %s', _partition.relation::regclass);
END;
$$;
