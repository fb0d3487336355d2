-- How many rows of a partition each that needs them has not read: and which readers lose them when it is dropped by force.
CREATE OR REPLACE FUNCTION projections._unread_rows_v1(p_name text)
RETURNS TABLE (kind text, holder text, unread bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _partition projections.partitions;
BEGIN
    SELECT p.* INTO _partition FROM projections.partitions AS p WHERE p.name = p_name AND p.to_timestamp IS NOT NULL;
    IF FOUND THEN
        RETURN QUERY EXECUTE format('SELECT h.kind, h.holder, h.unread FROM (%s) AS h', projections._hooks_v1('unread', '$1'))
        USING _partition;
    END IF;
END;
$$;
