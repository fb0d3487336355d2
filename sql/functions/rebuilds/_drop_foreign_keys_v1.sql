-- Drops the foreign keys of a table that serves no more: rows that it alone refers to can be deleted again. Locks the
-- tables that are referred to against all others until the transaction ends.
CREATE OR REPLACE FUNCTION projections._drop_foreign_keys_v1(p_table regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name text;
BEGIN
    FOR _name IN
        SELECT c.conname FROM pg_constraint AS c
        WHERE c.contype = 'f' AND c.conrelid = p_table AND c.conparentid = 0
    LOOP
        EXECUTE format('ALTER TABLE %s DROP CONSTRAINT %I', p_table, _name);
    END LOOP;
END;
$$;
