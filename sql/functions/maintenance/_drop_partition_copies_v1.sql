-- Drops the copies that runs of _cluster_partition_v1 have left behind which did not come to their swap. Until the
-- transaction ends no other one makes or swaps a copy: raises 55006 when one is at it.
CREATE OR REPLACE FUNCTION projections._drop_partition_copies_v1()
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name text;
    _dropped integer := 0;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections'), hashtext('cluster')) THEN
        RAISE EXCEPTION 'another run is putting a partition in slice order' USING ERRCODE = '55006';
    END IF;
    FOR _name IN
        SELECT c.relname FROM pg_catalog.pg_class AS c
        WHERE c.relnamespace = 'projections'::regnamespace AND c.relkind = 'r' AND NOT c.relispartition
        AND c.relname ~ '^events_copy_of_[0-9]+$'
    LOOP
        EXECUTE format('DROP TABLE projections.%I', _name);
        _dropped := _dropped + 1;
    END LOOP;
    RETURN _dropped;
END;
$$;
