-- Drops a closed partition that nothing keeps (partition_holders_v1); returns the bytes that it took. Run it in a
-- transaction of its own, at READ COMMITTED, with lock_timeout set as for create_partition_v1.
-- With p_force, also one that projections, rebuilds or groups still need: never one whose retention is not over. With
-- p_archived, one that is to be archived first: that many rows of it are archived.
-- Detaching and dropping are one transaction: a run that is killed leaves the partition whole. It could not be detached
-- concurrently, for the table has a default partition. docs/decisions/retention.md
-- PJ070: there is no such partition. PJ071: something keeps it. PJ072: it has changed since it was archived.
CREATE OR REPLACE FUNCTION projections.drop_partition_v1(
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
BEGIN
    -- What others have committed before the locks below were had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'dropping a partition needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    SELECT p.* INTO _partition FROM projections.partitions AS p
    WHERE p.name = p_name AND p.to_timestamp <= clock_timestamp();
    IF NOT FOUND THEN
        RAISE EXCEPTION '% is no partition whose time is over', quote_literal(p_name) USING ERRCODE = 'PJ070';
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
    -- Whoever would come to need it waits, too: registered, set back, or rebuilt.
    LOCK TABLE projections.projections, projections.rebuilds, projections.subscription_groups, projections.group_ranges
    IN SHARE MODE;
    SELECT string_agg(concat_ws(' ', nullif(h.holder, ''), h.reason), ', ' ORDER BY h.kind, h.holder) INTO _held
    FROM projections.partition_holders_v1(p_name) AS h
    WHERE CASE h.kind WHEN 'retention' THEN TRUE WHEN 'archive' THEN p_archived IS NULL ELSE NOT p_force END;
    IF _held IS NOT NULL THEN
        RAISE EXCEPTION 'partition % is kept: %', p_name, _held USING ERRCODE = 'PJ071';
    END IF;

    IF _partition.table_name = 'matches' THEN
        -- A group whose cursor lies before can not tell by itself that something is missing.
        EXECUTE format(
            'UPDATE projections.subscription_groups AS g SET dropped_until = d.match_id '
            'FROM (SELECT max(m.match_id) AS match_id FROM %s AS m) AS d WHERE g.dropped_until < d.match_id',
            _partition.relation::regclass
        );
    END IF;
    -- What was to take its place: cluster_partition_v1.
    IF to_regclass('projections.events_copy_of_' || _partition.relation) IS NOT NULL THEN
        EXECUTE format('DROP TABLE projections.%I', 'events_copy_of_' || _partition.relation);
    END IF;
    EXECUTE format('ALTER TABLE projections.%I DETACH PARTITION %s', _partition.table_name, _partition.relation::regclass);
    EXECUTE format('DROP TABLE %s', _partition.relation::regclass);
    RETURN _partition.bytes;
END;
$$;
