-- Makes a projection known, its slices cut into ranges that start at the given slices; a known one is returned as it is.
-- p_entity_types is whose events it reads, NULL for every type. It belongs to the version: another version may read other types, and does
-- from the swap of a rebuild on. Raises PJ020 when a projection of this name and version reads others, PJ021 for a pattern of types.
-- p_journal is the name of the journal that it reads where that is in another database. Raises PJ023 when it has begun with
-- another one: what its horizon and its offsets say is of that.
CREATE OR REPLACE FUNCTION projections.register_projection_v1(
    p_name text, p_entity_types text[], p_min_slices integer[] DEFAULT '{0}', p_version integer DEFAULT 1,
    p_journal text DEFAULT NULL
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _types CONSTANT text[] := CASE WHEN p_entity_types IS NOT NULL THEN ARRAY(
        SELECT DISTINCT t.entity_type COLLATE "C" FROM unnest(p_entity_types) AS t (entity_type) ORDER BY 1
    ) END;
    _known record;
BEGIN
    PERFORM projections._cut_v1(p_min_slices);
    IF strpos(array_to_string(_types, ''), '*') > 0 THEN
        RAISE EXCEPTION 'entity types %: * stands for nothing in them', array_to_string(_types, ', ')
        USING ERRCODE = 'PJ021', HINT = 'Write the names of kinds of sources, or NULL for every one.';
    END IF;
    INSERT INTO projections.projections (name, entity_types, version, journal) VALUES (p_name, _types, p_version, p_journal)
    ON CONFLICT (name) DO NOTHING;
    SELECT p.projection_id, p.entity_types, p.version, p.journal INTO _known
    FROM projections.projections AS p WHERE p.name = p_name FOR NO KEY UPDATE;
    IF _known.version = p_version AND _known.entity_types IS DISTINCT FROM _types THEN
        RAISE EXCEPTION 'projection % reads %, not %: raise its version and rebuild it, or give it another name', quote_literal(p_name),
            coalesce(
                'entity type ' || (SELECT string_agg(quote_literal(t.one), ', ') FROM unnest(_known.entity_types) AS t (one)),
                'every entity type'
            ),
            coalesce((SELECT string_agg(quote_literal(t.one), ', ') FROM unnest(_types) AS t (one)), 'every one')
        USING ERRCODE = 'PJ020', HINT = 'Its offsets and its read model belong to what it reads.';
    END IF;
    IF _known.journal IS DISTINCT FROM p_journal THEN
        -- Whoever runs it on the other one loses it.
        UPDATE projections.projection_ranges AS r SET epoch = r.epoch + 1, owner = NULL, journal_life = NULL
        WHERE r.projection_id = _known.projection_id;
        IF EXISTS (
            SELECT FROM projections.projection_ranges AS r
            WHERE r.projection_id = _known.projection_id AND r.horizon > '1970-01-01T00:00:00Z'
        ) OR EXISTS (SELECT FROM projections.source_offsets AS o WHERE o.projection_id = _known.projection_id) THEN
            RAISE EXCEPTION 'projection % reads %, not %', quote_literal(p_name),
                coalesce('journal ' || quote_literal(_known.journal) || ' of another database', 'the journal of its own database'),
                coalesce('journal ' || quote_literal(p_journal) || ' of another database', 'that')
            USING ERRCODE = 'PJ023', HINT = 'Name the journal that it reads, or empty its read model and clear its offset first.';
        END IF;
        UPDATE projections.projections AS p SET journal = p_journal WHERE p.projection_id = _known.projection_id;
    END IF;
    INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice)
    SELECT _known.projection_id, w.min_slice, w.max_slice FROM projections._cut_v1(p_min_slices) AS w
    WHERE NOT EXISTS (SELECT FROM projections.projection_ranges AS r WHERE r.projection_id = _known.projection_id);
    RETURN _known.projection_id;
END;
$$;
