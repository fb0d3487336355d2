-- Drops a closed partition that nothing keeps (partition_holders_v1); returns the bytes that it took. Run it in a
-- transaction of its own, at READ COMMITTED, with lock_timeout set as for _create_partition_v1.
-- With p_force, also one that projections, rebuilds or groups still need: never one whose retention is not over. With
-- p_archived, one that is to be archived first: that many rows of it are archived.
-- Who needs it is asked before the locks that others wait for, as long as that takes; under them, only whether that has changed:
-- projections by their horizons, and that no range of a group stands before where it was. Nothing there grows with data.
-- Detaching and dropping are one transaction: a run that is killed leaves the partition whole. It could not be detached
-- concurrently, for the table has a default partition. docs/decisions/retention.md
-- PJ070: there is no such partition. PJ071: something keeps it. PJ072: it has changed since it was archived.
CREATE OR REPLACE FUNCTION projections._drop_partition_v1(
    p_name text, p_force boolean DEFAULT FALSE, p_archived bigint DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _partition projections.partitions;
    _held text;
    _rows bigint;
    _last_match bigint;
    _before projections.group_ranges[];
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
    LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE;
    EXECUTE format('LOCK TABLE %s IN SHARE MODE', _partition.relation::regclass);
    IF p_archived IS NOT NULL THEN
        EXECUTE format('SELECT count(*) FROM %s', _partition.relation::regclass) INTO _rows;
        IF _rows <> p_archived THEN
            RAISE EXCEPTION 'partition % has % rows, of which % are archived', p_name, _rows, p_archived USING ERRCODE = 'PJ072';
        END IF;
    END IF;
    IF _partition.table_name = 'matches' THEN
        EXECUTE format('SELECT max(m.match_id) FROM %s AS m', _partition.relation::regclass) INTO _last_match;
    END IF;
    _before := ARRAY(SELECT r FROM projections.group_ranges AS r);
    SELECT string_agg(concat_ws(' ', nullif(h.holder, ''), h.reason), ', ' ORDER BY h.kind, h.holder) INTO _held
    FROM projections.partition_holders_v1(p_name) AS h
    WHERE CASE h.kind WHEN 'retention' THEN TRUE WHEN 'archive' THEN p_archived IS NULL ELSE NOT p_force END;
    IF _held IS NULL THEN
        -- Whoever would come to need it waits, too: registered, set back, or rebuilt. And whoever reads the table.
        PERFORM projections._lock_within_v1(ARRAY[
            'projections.projections IN SHARE MODE', 'projections.rebuilds IN SHARE MODE',
            'projections.subscription_groups IN SHARE MODE', 'projections.group_ranges IN SHARE MODE',
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

    IF _last_match IS NOT NULL THEN
        -- A group whose cursor lies before cannot tell by itself that something is missing.
        UPDATE projections.subscription_groups AS g SET dropped_until = _last_match WHERE g.dropped_until < _last_match;
    END IF;
    -- What was to take its place: _cluster_partition_v1.
    IF to_regclass('projections.events_copy_of_' || _partition.relation) IS NOT NULL THEN
        EXECUTE format('DROP TABLE projections.%I', 'events_copy_of_' || _partition.relation);
    END IF;
    EXECUTE format('ALTER TABLE projections.%I DETACH PARTITION %s', _partition.table_name, _partition.relation::regclass);
    EXECUTE format('DROP TABLE %s', _partition.relation::regclass);
    RETURN _partition.bytes;
END;
$$;
