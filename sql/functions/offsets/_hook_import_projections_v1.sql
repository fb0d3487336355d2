-- Refuses an import of entity types, each from a time on, where a projection that reads one of them has evicted offsets of that
-- time: it could no longer tell new from handled. Those that do nothing with such history refuse none. Raises PJ003.
CREATE OR REPLACE FUNCTION projections._hook_import_projections_v1(p_entity_types text[], p_since timestamptz[])
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _live_only text[];
    _refused record;
BEGIN
    EXECUTE format('SELECT array_agg(h.name) FROM (%s) AS h (part, name)', projections._hooks_v1('live_only')) INTO _live_only;
    SELECT p.name, p.evicted_before, i.since INTO _refused
    FROM unnest(p_entity_types, p_since) AS i (entity_type, since)
    INNER JOIN projections.projections AS p ON coalesce(i.entity_type = ANY (p.entity_types), TRUE)
    WHERE i.since < p.evicted_before AND p.name <> ALL (_live_only) AND p.journal IS NULL
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'events from % cannot be imported: projection % no longer knows what it handled before %',
            _refused.since, quote_literal(_refused.name), _refused.evicted_before
        USING ERRCODE = 'PJ003', HINT = 'Clear its offset and rebuild its read model after the import, or import first.';
    END IF;
    RETURN 0;
END;
$$;
