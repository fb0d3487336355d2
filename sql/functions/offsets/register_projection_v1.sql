-- Makes a projection known, its slices cut into ranges that start at the given slices; a known one is returned as it is.
-- p_entity_types is whose events it reads, NULL for every type. It belongs to the version: another version may read other types, and does
-- from the swap of a rebuild on. Raises PJ020 when a projection of this name and version reads others, PJ021 for a pattern of types.
CREATE OR REPLACE FUNCTION projections.register_projection_v1(
    p_name text, p_entity_types text[], p_min_slices integer[] DEFAULT '{0}', p_version integer DEFAULT 1
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
    INSERT INTO projections.projections (name, entity_types, version) VALUES (p_name, _types, p_version)
    ON CONFLICT (name) DO NOTHING;
    SELECT p.projection_id, p.entity_types, p.version INTO _known
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
    INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice)
    SELECT _known.projection_id, w.min_slice, w.max_slice FROM projections._cut_v1(p_min_slices) AS w
    WHERE NOT EXISTS (SELECT FROM projections.projection_ranges AS r WHERE r.projection_id = _known.projection_id);
    RETURN _known.projection_id;
END;
$$;
