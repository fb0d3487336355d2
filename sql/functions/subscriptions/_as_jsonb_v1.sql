-- JSON as conditions see it: NULL where jsonb cannot hold it, as with \u0000 in a string. One such event must not fail
-- the matching of the others.
CREATE OR REPLACE FUNCTION projections._as_jsonb_v1(p_json json)
RETURNS jsonb
LANGUAGE plpgsql
IMMUTABLE
PARALLEL SAFE
STRICT
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN p_json::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN RETURN NULL;
END;
$$;
