-- Who still needs rows of a time, and which: a partition is held by each whose time it has a part of.
CREATE OR REPLACE FUNCTION projections._retention_holders_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE format(
        'SELECT h.table_name, h.kind, h.holder, h.since, h.until, h.reason FROM (%s) AS h', projections._hooks_v1('holders')
    );
END;
$$;
