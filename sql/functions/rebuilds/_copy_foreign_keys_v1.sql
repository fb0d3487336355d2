-- Gives a full clone the foreign keys of its table, unchecked for the rows that it has: those are for
-- _validate_foreign_keys_v1, in another transaction. This one locks the tables that are referred to against their writers:
-- set lock_timeout, try again when it runs out, and commit at once. Keys that the clone has are left.
CREATE OR REPLACE FUNCTION projections._copy_foreign_keys_v1(p_table regclass, p_clone regclass)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _statement text;
BEGIN
    FOR _statement IN
        SELECT format(
            'ALTER TABLE %s ADD CONSTRAINT %I %s%s', p_clone, c.conname,
            -- One that refers to its own table is to refer to the clone.
            CASE
                WHEN c.confrelid <> p_table THEN pg_get_constraintdef(c.oid)
                ELSE replace(pg_get_constraintdef(c.oid), format(' REFERENCES %s(', p_table), format(' REFERENCES %s(', p_clone))
            END,
            -- Of one that is not valid, the definition says so.
            CASE WHEN c.convalidated THEN ' NOT VALID' ELSE '' END
        )
        FROM pg_constraint AS c
        WHERE c.contype = 'f' AND c.conrelid = p_table
        -- One that refers to a partitioned table has another for each partition, which the database makes.
        AND NOT EXISTS (SELECT FROM pg_constraint AS p WHERE p.oid = c.conparentid AND p.conrelid = p_table)
        AND NOT EXISTS (SELECT FROM pg_constraint AS k WHERE k.conrelid = p_clone AND k.conname = c.conname)
    LOOP
        EXECUTE _statement;
    END LOOP;
    FOR _statement IN
        SELECT format('COMMENT ON CONSTRAINT %I ON %s IS %L', c.conname, p_clone, obj_description(c.oid, 'pg_constraint'))
        FROM pg_constraint AS c
        WHERE c.contype = 'f' AND c.conrelid = p_table AND obj_description(c.oid, 'pg_constraint') IS NOT NULL
    LOOP
        EXECUTE _statement;
    END LOOP;
END;
$$;
