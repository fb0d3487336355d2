-- Begins a rebuild: remembers its cut, and makes the empty tables that it fills. Raises PJ040 when one is unfinished,
-- PJ041 when offsets newer than the cut were deleted meanwhile: take the cut again.
CREATE OR REPLACE FUNCTION projections._begin_rebuild_v1(
    p_projection_id integer,
    p_min_slice integer,
    p_max_slice integer,
    p_version integer,
    p_fence timestamptz,
    p_import_id bigint,
    p_fingerprint text,
    p_method text,
    p_part_min_slices integer[],
    p_part_max_slices integer[],
    -- For each table: which, whether sources share its rows, the columns that are staged, the column of the source's id.
    p_tables oid[],
    p_shared boolean[],
    p_columns text[],
    p_source_columns text[],
    -- What the version reads, NULL for every type.
    p_entity_types text[]
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _id integer;
    _schema text;
    _table record;
    _evicted_before timestamptz;
    _version integer;
    _entity_types text[];
BEGIN
    -- Evicting offsets has this lock, too, and leaves those that an unfinished rebuild needs.
    SELECT p.evicted_before, p.version, p.entity_types INTO _evicted_before, _version, _entity_types
    FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    -- Who adds a journal has this lock, too, and looks for unfinished rebuilds.
    IF (
        SELECT count(*) FROM projections.projections AS p
        INNER JOIN projections.projections AS o ON p.name = o.name
        WHERE p.projection_id = p_projection_id
    ) > 1 THEN
        RAISE EXCEPTION 'the projection reads several journals, and a rebuild is of one' USING ERRCODE = 'PJ040';
    END IF;
    -- A rebuild of all slices knows where every source stands; one of a part leaves the others to their offsets.
    IF _evicted_before > p_fence AND (p_min_slice, p_max_slice) <> (0, 1023) THEN
        RAISE EXCEPTION 'offsets up to % are gone, which is after the fence %', _evicted_before, p_fence USING ERRCODE = 'PJ041';
    END IF;
    IF _version = p_version AND _entity_types IS DISTINCT FROM p_entity_types THEN
        RAISE EXCEPTION 'version % of the projection reads other entity types', p_version USING ERRCODE = 'PJ020';
    END IF;
    INSERT INTO projections.rebuilds AS b (
        projection_id, min_slice, max_slice, version, fence, import_id, evicted_before, fingerprint, method, timeline, entity_types
    )
    VALUES (
        p_projection_id, p_min_slice, p_max_slice, p_version, p_fence, p_import_id, _evicted_before, p_fingerprint, p_method,
        projections.timeline_v1(), p_entity_types
    )
    ON CONFLICT (projection_id) WHERE state IN ('folding', 'verified') DO NOTHING
    RETURNING b.rebuild_id INTO _id;
    IF _id IS NULL THEN
        RAISE EXCEPTION 'a rebuild of this projection is unfinished' USING ERRCODE = 'PJ040';
    END IF;
    _schema := 'projections_rebuild_' || _id;
    IF to_regnamespace('projections_old_' || _id) IS NOT NULL THEN
        RAISE EXCEPTION 'the schema projections_old_% is there already, of an installation before this one', _id
        USING ERRCODE = 'PJ043', HINT = 'Drop it, or rename it.';
    END IF;
    EXECUTE format('CREATE SCHEMA %I', _schema);
    EXECUTE format(
        'CREATE TABLE %I._offsets (source_id text COLLATE "C", slice smallint, seq_nr bigint, db_timestamp timestamptz, '
        'events bigint, newest timestamptz)',
        _schema
    );
    INSERT INTO projections.rebuild_parts (rebuild_id, min_slice, max_slice)
    SELECT _id, r.min_slice, r.max_slice FROM unnest(p_part_min_slices, p_part_max_slices) AS r (min_slice, max_slice);
    FOR _table IN
        SELECT t.*, c.relname, n.nspname
        FROM unnest(p_tables, p_shared, p_columns, p_source_columns) WITH ORDINALITY
        AS t (id, shared, columns, source_column, place)
        INNER JOIN pg_class AS c ON t.id = c.oid
        INNER JOIN pg_namespace AS n ON c.relnamespace = n.oid
    LOOP
        INSERT INTO projections.rebuild_tables (
            rebuild_id, place, schema_name, table_name, table_oid, shape, source_column
        ) VALUES (
            _id, _table.place, _table.nspname, _table.relname, _table.id, projections._table_shape_v1(_table.id::regclass),
            _table.source_column
        );
        PERFORM projections._clone_table_v1(_table.id::regclass, _schema);
        IF _table.shared THEN
            EXECUTE format(
                'CREATE TABLE %I.%I AS SELECT %s FROM %s WITH NO DATA', _schema, '_staged_' || _table.place, _table.columns,
                _table.id::regclass
            );
        END IF;
    END LOOP;
    RETURN _id;
END;
$$;
