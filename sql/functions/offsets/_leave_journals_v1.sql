-- Looks at the parts of a projection whose journals are not named by those who run it. One that has begun is not left: raises PJ023.
-- The others lose their ranges; the first of them takes the journal p_journal, if that has no part yet, and the rest are deleted.
-- Raises PJ040 where p_journal is to be added while a rebuild of the projection is unfinished, whose tables would lack its events.
CREATE OR REPLACE FUNCTION projections._leave_journals_v1(p_name text, p_journal text, p_journals text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _unnamed integer[];
    _begun text;
    _part text;
    _has_part boolean;
BEGIN
    PERFORM FROM projections.projections AS p WHERE p.name = p_name ORDER BY p.projection_id FOR NO KEY UPDATE;
    _unnamed := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p
        WHERE p.name = p_name AND array_position(p_journals, p.journal) IS NULL ORDER BY p.projection_id
    );
    _has_part := EXISTS (
        SELECT FROM projections.projections AS p WHERE p.name = p_name AND p.journal IS NOT DISTINCT FROM p_journal
    );
    IF _unnamed <> '{}' THEN -- or the offsets, which somebody may have locked, would be looked at for nothing
        -- Whoever runs them loses them, before it is looked whether they have begun.
        UPDATE projections.projection_ranges AS r SET epoch = r.epoch + 1, owner = NULL, journal_life = NULL
        WHERE r.projection_id = ANY (_unnamed);
        SELECT string_agg(
            coalesce('journal ' || quote_literal(p.journal) || ' of another database', 'the journal of its own database'), ' and '
            ORDER BY p.projection_id
        ), min(coalesce(p.journal, 'journal')) INTO _begun, _part
        FROM projections.projections AS p
        WHERE p.projection_id = ANY (_unnamed)
        AND (
            EXISTS (
                SELECT FROM projections.projection_ranges AS r
                WHERE r.projection_id = p.projection_id AND r.horizon > '1970-01-01T00:00:00Z'
            )
            OR EXISTS (SELECT FROM projections.source_offsets AS o WHERE o.projection_id = p.projection_id)
        );
    END IF;
    IF _begun IS NOT NULL AND NOT _has_part AND cardinality(p_journals) = 1 THEN
        RAISE EXCEPTION 'projection % reads %, not %: name the journal that it reads, and this one alongside it if it is to read both; or '
            'empty its read model and clear its offset first', quote_literal(p_name), _begun,
            coalesce('journal ' || quote_literal(p_journal) || ' of another database', 'that')
        USING ERRCODE = 'PJ023';
    ELSIF _begun IS NOT NULL THEN
        RAISE EXCEPTION 'projection % reads %, too, which is not named: name all its journals; or, if it is to read that no more, remove '
            'that part of it: projections remove %', quote_literal(p_name), _begun, p_name || '@' || _part
        USING ERRCODE = 'PJ023';
    END IF;
    IF NOT _has_part AND EXISTS (
        SELECT FROM projections.rebuilds AS b INNER JOIN projections.projections AS p ON b.projection_id = p.projection_id
        WHERE p.name = p_name AND b.state IN ('folding', 'verified')
    ) THEN
        RAISE EXCEPTION 'a rebuild of projection % is unfinished: it can read another journal when that has ended', quote_literal(p_name)
        USING ERRCODE = 'PJ040';
    END IF;
    IF NOT _has_part THEN
        UPDATE projections.projections AS p SET journal = p_journal WHERE p.projection_id = _unnamed[1];
        _unnamed := _unnamed[2:];
    END IF;
    DELETE FROM projections.range_changes AS c WHERE c.projection_id = ANY (_unnamed);
    DELETE FROM projections.projections AS p WHERE p.projection_id = ANY (_unnamed);
END;
$$;
