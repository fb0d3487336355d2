-- Copies a closed partition in slice order, so that a range of slices lies on pages of its own; returns the events copied.
-- The copy stands alongside the log until _swap_partition_v1 puts it in the partition's place. Between the two, outside of a
-- transaction, comes VACUUM (FREEZE, ANALYZE) of projections.events_copy_of_<oid of the partition>: see there.
-- Readers and writers go on meanwhile; what they write to this partition until the swap, the swap notices. It needs the
-- disk for a second copy, and for the sort.
-- The entity type comes first, for nobody reads slices of all types at once. BRIN on the two costs a page in thousands
-- and has no order that could lure a reader in time order; it is also how the view partitions knows what is done.
CREATE OR REPLACE FUNCTION projections._cluster_partition_v1(p_name text)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    _old pg_catalog.pg_class;
    _partition projections.partitions;
    _copy text;
    _statement text;
    _copied bigint;
BEGIN
    PERFORM projections._drop_partition_copies_v1();
    SELECT p.* INTO _partition FROM projections.partitions AS p
    WHERE p.table_name = 'events' AND p.name = p_name;
    IF _partition.from_timestamp IS NULL OR _partition.to_timestamp IS NULL THEN
        RAISE EXCEPTION '% is not a time partition of projections.events', quote_literal(p_name) USING ERRCODE = '42704';
    ELSIF _partition.to_timestamp > clock_timestamp() THEN
        RAISE EXCEPTION 'partition % is not closed: it takes events until %', p_name, _partition.to_timestamp USING ERRCODE = '55000';
    END IF;
    EXECUTE format('LOCK TABLE projections.%I IN ACCESS SHARE MODE', p_name);
    SELECT c.* INTO _old FROM pg_catalog.pg_class AS c WHERE c.oid = format('projections.%I', p_name)::regclass;
    IF _old.relkind <> 'r' OR _old.relhasrules OR _old.relrowsecurity
        OR EXISTS (SELECT FROM pg_catalog.pg_trigger AS t WHERE t.tgrelid = _old.oid AND t.tgparentid = 0 AND NOT t.tgisinternal)
        OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel AS r WHERE r.prrelid = _old.oid) THEN
        RAISE EXCEPTION 'partition % has partitions, triggers, rules, policies or a publication of its own', p_name
        USING ERRCODE = '0A000', HINT = 'Have them on projections.events.';
    END IF;

    _copy := 'events_copy_of_' || _old.oid;
    PERFORM set_config('work_mem', current_setting('maintenance_work_mem'), TRUE);
    -- The constraint spares ATTACH the reading of the table while it keeps others out.
    EXECUTE format(
        'CREATE TABLE projections.%I (LIKE projections.%I INCLUDING ALL EXCLUDING INDEXES, '
        'CONSTRAINT within_bounds CHECK (db_timestamp >= %L AND db_timestamp < %L))',
        _copy, p_name, _partition.from_timestamp, _partition.to_timestamp
    );
    FOR _statement IN SELECT * FROM projections._partition_settings_v1(_old.oid, _copy) LOOP
        EXECUTE _statement;
    END LOOP;
    EXECUTE format(
        'INSERT INTO projections.%I SELECT * FROM projections.%I ORDER BY entity_type, slice, source_id, seq_nr', _copy, p_name
    );
    GET DIAGNOSTICS _copied = ROW_COUNT;
    FOR _statement IN SELECT * FROM projections._partition_indexes_v1(_old.oid, _copy) LOOP
        EXECUTE _statement;
    END LOOP;
    EXECUTE format('CREATE INDEX %I ON projections.%I USING brin (entity_type, slice) WITH (pages_per_range = 32)', _copy || '_slices', _copy);
    RETURN _copied;
END;
$$;
