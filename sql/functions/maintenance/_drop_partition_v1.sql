-- Drops a closed partition that nothing keeps (partition_holders_v1); returns the bytes that it took. Run it in a
-- transaction of its own, at READ COMMITTED, with lock_timeout set as for _create_partition_v1.
-- With p_force, also one whose rows somebody has not read: never one whose retention is not over. With
-- p_archived, one that is to be archived first: that many rows of it are archived, with the checksum p_content (_check_archived_v1).
-- Who needs it is asked before the locks that others wait for, as long as that takes; under them, only whether somebody has gone
-- back from the place where he stood. Nothing there grows with data.
-- Detaching and dropping are one transaction: a run that is killed leaves the partition whole. It could not be detached
-- concurrently, for the table has a default partition. docs/decisions/retention.md
-- PJ070: there is no such partition. PJ071: something keeps it. PJ072: it has changed since it was archived.
CREATE OR REPLACE FUNCTION projections._drop_partition_v1(
    p_name text, p_force boolean DEFAULT FALSE, p_archived bigint DEFAULT NULL, p_content numeric DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _partition projections.partitions;
    _held text;
    _before jsonb;
    _locks text[];
BEGIN
    -- What others have committed before the locks below were had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'dropping a partition needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    SELECT p.* INTO _partition FROM projections.partitions AS p
    WHERE p.name = p_name AND p.to_timestamp <= clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is not a partition whose time is over', quote_literal(p_name) USING ERRCODE = 'PJ070';
    END IF;

    -- Whoever would write to the partition waits from here on: imports before they have locked anything else.
    IF p_archived IS NOT NULL THEN
        PERFORM projections._check_archived_v1(_partition, p_archived, p_content);
    END IF;
    LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', _partition.relation::regclass);
    EXECUTE format(
        'SELECT jsonb_object_agg(h.part || '' '' || h.range, h.place) FROM (%s) AS h', projections._hooks_v1('places', '$1')
    ) INTO _before USING _partition;
    SELECT string_agg(concat_ws(' ', nullif(h.holder, ''), h.reason), ', ' ORDER BY h.kind, h.holder) INTO _held
    FROM projections.partition_holders_v1(p_name) AS h
    WHERE CASE h.kind WHEN 'retention' THEN TRUE WHEN 'archive' THEN p_archived IS NULL ELSE NOT p_force END;
    IF _held IS NULL THEN
        -- Whoever would come to need it waits, too: registered, set back, or rebuilt. And whoever reads the table.
        EXECUTE format('SELECT array_agg(h.name || '' IN SHARE MODE'') FROM (%s) AS h (part, name)', projections._hooks_v1('locks'))
        INTO _locks;
        PERFORM projections._lock_within_v1(_locks || ARRAY[
            format('ONLY projections.%I IN ACCESS EXCLUSIVE MODE', _partition.table_name)
        ] || ARRAY(
            SELECT p.relation::regclass || ' IN ACCESS EXCLUSIVE MODE' FROM projections.partitions AS p
            WHERE p.table_name = _partition.table_name AND (p.is_default OR p.name = p_name)
        ));
        _held := CASE WHEN NOT p_force THEN projections._newly_held_v1(_partition, _before) END;
    END IF;
    IF _held IS NOT NULL THEN
        RAISE EXCEPTION 'partition % is kept: %', p_name, _held USING ERRCODE = 'PJ071';
    END IF;

    EXECUTE projections._hooks_v1('drop', '$1') USING _partition;
    -- What was to take its place: _cluster_partition_v1.
    IF to_regclass('projections.events_copy_of_' || _partition.relation) IS NOT NULL THEN
        EXECUTE format('DROP TABLE projections.%I', 'events_copy_of_' || _partition.relation);
    END IF;
    EXECUTE format('ALTER TABLE projections.%I DETACH PARTITION %s', _partition.table_name, _partition.relation::regclass);
    EXECUTE format('DROP TABLE %s', _partition.relation::regclass);
    RETURN _partition.bytes;
END;
$$;
