-- Makes a projection known, its slices cut into ranges that start at the given slices; a known one is returned as it is.
-- p_entity_types is whose events it reads, NULL for every type. It belongs to the version: another version may read other types, and does
-- from the swap of a rebuild on. Raises PJ020 when a projection of this name and version reads others, PJ021 for a pattern of types.
-- p_journal is the name of the journal that it reads where that is in another database. Of each journal that a projection reads it has
-- a row, a part of it, with ranges and offsets of its own. p_journals names them all, NULL for the one that is here. Raises PJ023 when the
-- projection has begun with one that is not named: nobody would go on with it, or its events would be read again under another name.
CREATE OR REPLACE FUNCTION projections.register_projection_v1(
    p_name text, p_entity_types text[], p_min_slices integer[] DEFAULT '{0}', p_version integer DEFAULT 1,
    p_journal text DEFAULT NULL, p_journals text[] DEFAULT NULL
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _types CONSTANT text[] := CASE WHEN p_entity_types IS NOT NULL THEN ARRAY(
        SELECT DISTINCT t.entity_type COLLATE "C" FROM unnest(p_entity_types) AS t (entity_type) ORDER BY 1
    ) END;
    _others record;
    _known record;
BEGIN
    PERFORM projections._cut_v1(p_min_slices);
    IF strpos(array_to_string(_types, ''), '*') > 0 THEN
        RAISE EXCEPTION 'entity types %: * stands for nothing in them', array_to_string(_types, ', ')
        USING ERRCODE = 'PJ021', HINT = 'Write the names of kinds of sources, or NULL for every one.';
    END IF;
    -- Two that make parts of one projection at a time must see each other's.
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections register'), hashtext(p_name));
    PERFORM projections._leave_journals_v1(p_name, p_journal, coalesce(p_journals, ARRAY[p_journal]));
    SELECT p.version, p.entity_types, bool_and(p.paused) OVER () AS paused INTO _others
    FROM projections.projections AS p WHERE p.name = p_name ORDER BY p.projection_id LIMIT 1;
    -- A part is as the others: they fill one read model, by one version of the code.
    INSERT INTO projections.projections (name, entity_types, version, journal, paused)
    SELECT
        p_name, CASE WHEN _others.version IS NULL THEN _types ELSE _others.entity_types END, coalesce(_others.version, p_version),
        p_journal, coalesce(_others.paused, FALSE)
    WHERE NOT EXISTS (
        SELECT FROM projections.projections AS p WHERE p.name = p_name AND p.journal IS NOT DISTINCT FROM p_journal
    );
    SELECT p.projection_id, p.entity_types, p.version INTO _known
    FROM projections.projections AS p WHERE p.name = p_name AND p.journal IS NOT DISTINCT FROM p_journal FOR NO KEY UPDATE;
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
