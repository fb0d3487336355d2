-- Checks conditions that an earlier version of the schema has accepted, up to p_limit, and makes their functions again as this
-- version does. One that is refused now is stopped, and what it is to be asked waits; returns those, with the reasons. Whoever
-- matches calls it, every second: not the upgrade, which would hold its locks for as long as that takes.
CREATE OR REPLACE FUNCTION projections._check_conditions_v1(p_limit integer DEFAULT 100)
RETURNS TABLE (condition_id integer, error text)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _version CONSTANT integer := (SELECT max(v.version) FROM projections.schema_versions AS v);
    _c record;
BEGIN
    -- Without the role nothing can be said of any.
    IF (
        SELECT p.proowner FROM pg_catalog.pg_proc AS p WHERE p.oid = 'projections._compile_condition_v1'::regproc
    ) IS DISTINCT FROM to_regrole('projections_matcher') THEN
        RETURN;
    END IF;
    FOR _c IN
        SELECT c.condition_id, c.sql FROM projections.conditions AS c WHERE c.checked < _version
        ORDER BY c.condition_id LIMIT p_limit
        FOR NO KEY UPDATE SKIP LOCKED
    LOOP
        BEGIN
            UPDATE projections.conditions AS c
            SET checked = _version, of_types = projections._compile_condition_v1(_c.condition_id, _c.sql)
            WHERE c.condition_id = _c.condition_id;
        EXCEPTION
            WHEN OTHERS THEN
                condition_id := _c.condition_id;
                error := 'refused since the schema was upgraded: ' || SQLERRM;
                UPDATE projections.conditions AS c SET checked = _version WHERE c.condition_id = _c.condition_id;
                PERFORM projections._quarantine_condition_v1(_c.condition_id, error);
                RETURN NEXT;
        END;
    END LOOP;
END;
$$;
