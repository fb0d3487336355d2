-- Runs first: refuses where this script must not run. The number in it is this script's version, stated here alone;
-- it equals the highest number in migrations/.
SET LOCAL transaction_isolation = 'read committed';
-- What is made here calls what it names: PostgreSQL's own, not what somebody has put into a schema of the search path.
SET LOCAL search_path = pg_catalog, pg_temp;
-- Backslashes in the texts below are backslashes.
SET LOCAL standard_conforming_strings = on;

DO $$
DECLARE
    _script constant integer := 4;
    _found integer;
BEGIN
    IF current_setting('server_version_num')::integer < 140000 THEN
        RAISE EXCEPTION 'PostgreSQL 14 or later is needed, this is %', current_setting('server_version')
        USING ERRCODE = 'PJ030';
    END IF;
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'the encoding of database % is %, it must be UTF8: create one WITH ENCODING ''UTF8'' TEMPLATE template0',
            quote_ident(current_database()), current_setting('server_encoding')
        USING ERRCODE = 'PJ030';
    END IF;

    -- One install at a time; the second then finds what the first has made.
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('schema'));
    IF to_regclass('projections.schema_versions') IS NOT NULL THEN
        SELECT max(v.version) INTO _found FROM projections.schema_versions AS v;
    ELSIF EXISTS (SELECT FROM pg_catalog.pg_class AS c WHERE c.relnamespace = to_regnamespace('projections'))
        OR EXISTS (SELECT FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = to_regnamespace('projections')) THEN
        RAISE EXCEPTION 'the schema projections exists and holds objects that are not of slice-projections: rename it'
        USING ERRCODE = 'PJ030';
    END IF;
    IF _found > _script THEN
        RAISE EXCEPTION 'this database has schema version %, newer than this library''s %: upgrade the library', _found, _script
        USING ERRCODE = 'PJ030';
    ELSIF _found < _script THEN
        RAISE EXCEPTION 'this database has schema version %, older than this library''s %: run `projections schema upgrade`',
            _found, _script
        USING ERRCODE = 'PJ030';
    END IF;
    PERFORM set_config('projections.schema_version', _script::text, TRUE);
END;
$$;

-- The setting ends with its transaction, so it is gone here if every statement is one of its own.
DO $$
BEGIN
    IF coalesce(current_setting('projections.schema_version', TRUE), '') = '' THEN
        RAISE EXCEPTION 'this script runs in one transaction: psql -1 -f' USING ERRCODE = 'PJ030';
    END IF;
END;
$$;
