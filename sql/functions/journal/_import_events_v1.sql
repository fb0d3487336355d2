-- Moves staged history into the journal; journal/importing.py fills the temporary table projections_import, which is the
-- caller's own. What it checks, raises and returns, _move_imported_v1 says, which is given the table to read.
CREATE OR REPLACE FUNCTION projections._import_events_v1()
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF to_regclass('pg_temp.projections_import') IS NOT NULL THEN  -- else it says so
        EXECUTE format(
            'GRANT SELECT, TRUNCATE ON TABLE pg_temp.projections_import TO %I',
            (
                SELECT r.rolname FROM pg_proc AS p INNER JOIN pg_roles AS r ON p.proowner = r.oid
                WHERE p.oid = 'projections._move_imported_v1()'::regprocedure
            )
        );
    END IF;
    RETURN projections._move_imported_v1();
END;
$$;
