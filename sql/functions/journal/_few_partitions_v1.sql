-- Whether the journal has so few partitions that a page opens all of them with a plan that is kept: planning a page with its times
-- as values, to open only those that it needs, would cost more.
CREATE OR REPLACE FUNCTION projections._few_partitions_v1()
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        SELECT count(*) <= 32
        FROM (
            SELECT FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = 'projections.events'::regclass LIMIT 33
        ) AS p
    );
END;
$$;
