-- Has each part of the library remove what nobody uses any more, some of it; returns how much of each. Nothing: all is done.
CREATE OR REPLACE FUNCTION projections._clean_v1()
RETURNS TABLE (part text, removed bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE projections._hooks_v1('maintain');
END;
$$;
