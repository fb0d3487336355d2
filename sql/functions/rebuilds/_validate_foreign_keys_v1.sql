-- Checks every row of a clone against those of its foreign keys (_copy_foreign_keys_v1) that are valid on its table. It may
-- take minutes, in which others read and write the tables that are referred to.
CREATE OR REPLACE FUNCTION projections._validate_foreign_keys_v1(p_table regclass, p_clone regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _name text;
BEGIN
    FOR _name IN
        SELECT k.conname FROM pg_constraint AS k INNER JOIN pg_constraint AS c ON k.conname = c.conname
        WHERE k.conrelid = p_clone AND k.contype = 'f' AND NOT k.convalidated
        AND c.conrelid = p_table AND c.contype = 'f' AND c.convalidated
        AND NOT EXISTS (SELECT FROM pg_constraint AS p WHERE p.oid = k.conparentid AND p.conrelid = p_clone)
    LOOP
        EXECUTE format('ALTER TABLE %s VALIDATE CONSTRAINT %I', p_clone, _name);
    END LOOP;
END;
$$;
