-- The number of a condition; one that is new is checked and compiled. Two that ask for the same new one at once wait for
-- each other; those that ask for others do not.
CREATE OR REPLACE FUNCTION projections._condition_id_v1(p_sql text)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET standard_conforming_strings = on
AS $$
DECLARE
    _id integer;
BEGIN
    -- The lock keeps it from being forgotten until the subscription is there.
    SELECT c.condition_id INTO _id FROM projections.conditions AS c WHERE c.sql = p_sql FOR KEY SHARE;
    IF FOUND THEN
        RETURN _id;
    END IF;
    IF p_sql !~ '\S' THEN
        RAISE EXCEPTION 'a condition is not empty' USING ERRCODE = 'PJ080', HINT = 'Leave it out for none.';
    ELSIF char_length(p_sql) > 10000 THEN
        RAISE EXCEPTION 'a condition has at most 10,000 characters, not %', char_length(p_sql)
        USING ERRCODE = 'PJ080', HINT = 'Give long values in params.';
    END IF;
    -- As any other role, what makes conditions would be able to do more than they may.
    IF to_regnamespace('projections_conditions') IS NULL OR NOT EXISTS (
        SELECT FROM pg_catalog.pg_proc AS p
        WHERE p.oid = 'projections._compile_condition_v1'::regproc AND p.proowner = to_regrole('projections_matcher')
    ) THEN
        RAISE EXCEPTION 'subscriptions cannot have conditions in this database: the role projections_matcher could not be set up'
        USING ERRCODE = 'PJ080', HINT = 'Install the schema again as a role that may create roles and schemas.';
    END IF;
    LOOP
        INSERT INTO projections.conditions (sql, of_types) VALUES (p_sql, FALSE)
        ON CONFLICT DO NOTHING RETURNING condition_id INTO _id;
        IF FOUND THEN
            UPDATE projections.conditions AS c
            SET
                of_types = projections._compile_condition_v1(_id, p_sql),
                checked = coalesce((SELECT max(v.version) FROM projections.schema_versions AS v), 0)
            WHERE c.condition_id = _id;
            RETURN _id;
        END IF;
        -- Somebody else has just made it; unless it was forgotten since.
        SELECT c.condition_id INTO _id FROM projections.conditions AS c WHERE c.sql = p_sql FOR KEY SHARE;
        IF FOUND THEN
            RETURN _id;
        END IF;
    END LOOP;
END;
$$;
