-- Puts a verified rebuild in the place of what served until now, in one transaction: the tables or their rows, the offsets
-- of the sources, and the ranges, whose owners begin again at the fence. What served is kept in projections_old_<id>.
--
-- Raises PJ042 when a table was changed since the rebuild began, PJ043 when the rebuild is not ready or offsets were set, PJ013
-- when the database went back in time since it began: with what _beat_rebuild_v1 takes, also when it was restored in place.
-- It waits for whoever uses the tables, and others wait behind it: set lock_timeout, and try again when it runs out.
CREATE OR REPLACE FUNCTION projections._swap_rebuild_v1(
    p_rebuild_id integer, p_started_at timestamptz DEFAULT NULL, p_beats bigint DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _new CONSTANT text := 'projections_rebuild_' || p_rebuild_id;
    _old CONSTANT text := 'projections_old_' || p_rebuild_id;
    _rebuild projections.rebuilds;
    _table record;
    _unfit text[];
    _statistics record;
BEGIN
    SELECT b.* INTO _rebuild FROM projections.rebuilds AS b WHERE b.rebuild_id = p_rebuild_id FOR UPDATE;
    IF _rebuild.state IS DISTINCT FROM 'verified' THEN
        RAISE EXCEPTION 'rebuild % is %, not verified', p_rebuild_id, coalesce(_rebuild.state, 'unknown') USING ERRCODE = 'PJ043';
    END IF;
    PERFORM projections._beat_rebuild_v1(
        p_rebuild_id, coalesce(p_started_at, _rebuild.started_at), coalesce(p_beats, _rebuild.beats)
    );
    PERFORM projections._lock_inline_v1(_rebuild.projection_id);
    -- A live batch has its tables before it asks for the row of its range: the same order here, or both would wait.
    FOR _table IN SELECT * FROM projections.rebuild_tables AS t WHERE t.rebuild_id = p_rebuild_id ORDER BY t.place LOOP
        IF to_regclass(format('%I.%I', _table.schema_name, _table.table_name)) IS NOT NULL THEN
            EXECUTE format(
                'LOCK TABLE %I.%I IN %s MODE', _table.schema_name, _table.table_name,
                CASE _rebuild.method WHEN 'rename' THEN 'ACCESS EXCLUSIVE' ELSE 'SHARE ROW EXCLUSIVE' END
            );
        END IF;
        IF to_regclass(format('%I.%I', _table.schema_name, _table.table_name)) IS DISTINCT FROM _table.table_oid::regclass
            OR projections._table_shape_v1(_table.table_oid::regclass) <> _table.shape THEN
            RAISE EXCEPTION 'table %.% was changed since the rebuild began', _table.schema_name, _table.table_name
            USING ERRCODE = 'PJ042', HINT = 'Rebuild again: the new table is like the old one was.';
        END IF;
        _unfit := projections._unfit_for_rename_v1(_table.table_oid::regclass, _table.columns);
        IF _rebuild.method = 'rename' AND _unfit <> '{}' THEN
            RAISE EXCEPTION 'since the rebuild began table %.% cannot be replaced any more: %',
                _table.schema_name, _table.table_name, array_to_string(_unfit, '; ')
            USING ERRCODE = 'PJ042', HINT = 'Drop that, or rebuild again in place.';
        END IF;
    END LOOP;
    PERFORM FROM projections.projections AS p
    WHERE p.projection_id = _rebuild.projection_id AND p.evicted_before = _rebuild.evicted_before FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the offset of the projection was set since the rebuild began' USING ERRCODE = 'PJ043';
    END IF;

    EXECUTE format('CREATE SCHEMA %I', _old);
    FOR _table IN SELECT * FROM projections.rebuild_tables AS t WHERE t.rebuild_id = p_rebuild_id ORDER BY t.place LOOP
        IF _rebuild.method = 'rename' THEN
            -- Statistics have a schema of their own, which is not their table's.
            FOR _statistics IN
                SELECT s.stxname AS name, s.stxnamespace::regnamespace AS place FROM pg_statistic_ext AS s
                WHERE s.stxrelid = _table.table_oid
            LOOP
                EXECUTE format('ALTER STATISTICS %s.%I SET SCHEMA %I', _statistics.place, _statistics.name, _old);
                EXECUTE format('ALTER STATISTICS %I.%I SET SCHEMA %s', _new, _statistics.name, _statistics.place);
            END LOOP;
            PERFORM projections._continue_identities_v1(
                format('%I.%I', _new, _table.table_name)::regclass, _table.table_oid::regclass,
                ARRAY(SELECT a.attname::text FROM pg_attribute AS a WHERE a.attrelid = _table.table_oid AND a.attidentity <> '')
            );
            EXECUTE format('ALTER TABLE %I.%I SET SCHEMA %I', _table.schema_name, _table.table_name, _old);
            -- What nobody writes any more must not keep others from deleting what it refers to.
            PERFORM projections._drop_foreign_keys_v1(_table.table_oid::regclass);
            EXECUTE format('ALTER TABLE %I.%I SET SCHEMA %I', _new, _table.table_name, _table.schema_name);
        ELSE
            PERFORM projections._replace_rows_v1(_rebuild, _table.table_oid::regclass, _table.source_column);
        END IF;
    END LOOP;
    PERFORM projections._move_offsets_v1(_rebuild);
    EXECUTE format('DROP SCHEMA %I CASCADE', _new);
    UPDATE projections.rebuilds AS b SET state = 'swapped', swapped_at = clock_timestamp() WHERE b.rebuild_id = p_rebuild_id;
END;
$$;
