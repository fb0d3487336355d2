-- Makes a projection known, its slices cut into ranges that start at the given slices; a known one is returned as it is.
-- Raises PJ020 when the name is taken by a projection of another entity type, PJ021 for a pattern of entity types.
CREATE OR REPLACE FUNCTION projections.register_projection_v1(
    p_name text, p_entity_type text, p_min_slices integer[] DEFAULT '{0}', p_version integer DEFAULT 1
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _known record;
BEGIN
    PERFORM projections.cut_v1(p_min_slices);
    IF strpos(p_entity_type, '*') > 0 THEN
        RAISE EXCEPTION 'entity type %: * stands for nothing in it', quote_literal(p_entity_type)
        USING ERRCODE = 'PJ021', HINT = 'Write the name of one kind of sources, and make a projection for each.';
    END IF;
    INSERT INTO projections.projections (name, entity_type, version) VALUES (p_name, p_entity_type, p_version)
    ON CONFLICT (name) DO NOTHING;
    SELECT p.projection_id, p.entity_type INTO _known
    FROM projections.projections AS p WHERE p.name = p_name FOR NO KEY UPDATE;
    IF _known.entity_type <> p_entity_type THEN
        RAISE EXCEPTION 'projection % reads entity type %, not %',
            quote_literal(p_name), quote_literal(_known.entity_type), quote_literal(p_entity_type)
        USING ERRCODE = 'PJ020', HINT = 'Give it another name: its offsets belong to the other type.';
    END IF;
    INSERT INTO projections.projection_ranges (projection_id, min_slice, max_slice)
    SELECT _known.projection_id, w.min_slice, w.max_slice FROM projections.cut_v1(p_min_slices) AS w
    WHERE NOT EXISTS (SELECT FROM projections.projection_ranges AS r WHERE r.projection_id = _known.projection_id);
    RETURN _known.projection_id;
END;
$$;
