-- Gives a full clone the foreign keys of its table, which checks every row; those that it has are left.
CREATE OR REPLACE FUNCTION projections.copy_foreign_keys_v1(p_table regclass, p_clone regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _statement text;
BEGIN
    FOR _statement IN
        SELECT format(
            'ALTER TABLE %s ADD CONSTRAINT %I %s', p_clone, c.conname,
            -- One that refers to its own table is to refer to the clone.
            CASE
                WHEN c.confrelid <> p_table THEN pg_get_constraintdef(c.oid)
                ELSE replace(pg_get_constraintdef(c.oid), format(' REFERENCES %s(', p_table), format(' REFERENCES %s(', p_clone))
            END
        )
        FROM pg_constraint AS c
        WHERE c.contype = 'f' AND c.conrelid = p_table
        AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = p_clone AND k.conname = c.conname)
    LOOP
        EXECUTE _statement;
    END LOOP;
END;
$$;
