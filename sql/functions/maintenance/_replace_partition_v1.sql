-- The last step of _swap_partition_v1, with its locks: drops a partition and attaches its copy under the same name.
-- A query plans with the partitions that it finds and only then takes its snapshot. Those that were planned with the old one
-- have ended, or the lock on projections.events would not be had; those that wait for it find the new one.
CREATE OR REPLACE FUNCTION projections._replace_partition_v1(p_name text, p_copy text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
DECLARE
    _old oid := format('projections.%I', p_name)::regclass;
    _bounds text;
    _names text[];
    _copies text[];
BEGIN
    SELECT pg_get_expr(c.relpartbound, c.oid) INTO STRICT _bounds FROM pg_catalog.pg_class AS c WHERE c.oid = _old;
    SELECT array_agg(c.relname), array_agg('index_copy_of_' || c.oid) INTO _names, _copies
    FROM pg_catalog.pg_index AS i INNER JOIN pg_catalog.pg_class AS c ON i.indexrelid = c.oid
    WHERE i.indrelid = _old AND pg_get_indexdef(c.oid) NOT LIKE '% USING brin (entity_type, slice)%';
    -- ATTACH would make what is missing, with everybody waiting.
    IF EXISTS (SELECT FROM unnest(_copies) AS i (name) WHERE to_regclass('projections.' || i.name) IS NULL) THEN
        RAISE EXCEPTION 'partition % has got an index since it was copied', p_name USING ERRCODE = 'PJ050';
    END IF;

    EXECUTE format('ALTER TABLE projections.events DETACH PARTITION projections.%I', p_name);
    EXECUTE format('DROP TABLE projections.%I', p_name);
    EXECUTE format('ALTER TABLE projections.%I RENAME TO %I', p_copy, p_name);
    FOR _n IN 1..cardinality(_names) LOOP
        EXECUTE format('ALTER INDEX projections.%I RENAME TO %I', _copies[_n], _names[_n]);
    END LOOP;
    EXECUTE format('ALTER INDEX projections.%I RENAME TO %I', p_copy || '_slices', left(p_name, 52) || '_slices_idx');
    EXECUTE format('ALTER TABLE projections.events ATTACH PARTITION projections.%I %s', p_name, _bounds);
    EXECUTE format('ALTER TABLE projections.%I DROP CONSTRAINT within_bounds', p_name);
END;
$$;
