-- Whether the caller is to maintain now: of all workers one, each time that so long has passed. One that dies over it is
-- followed by the next when the time has passed again.
CREATE OR REPLACE FUNCTION projections.take_maintenance_v1(p_every interval)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE projections.partition_settings AS s SET maintained_at = clock_timestamp()
    WHERE s.maintained_at <= clock_timestamp() - p_every;
    RETURN FOUND;
END;
$$;
