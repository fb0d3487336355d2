-- Group roles to be granted to the roles that log in. They are the server's, not the database's, so they may exist.
-- Without the right to create roles (managed servers), the schema works and its owner uses it.
DO $$
DECLARE
    _role text;
BEGIN
    FOREACH _role IN ARRAY ARRAY['projections_writer', 'projections_reader', 'projections_worker', 'projections_matcher'] LOOP
        IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles WHERE rolname = _role) THEN
            BEGIN
                EXECUTE format('CREATE ROLE %I NOLOGIN', _role);
            EXCEPTION
                WHEN duplicate_object OR unique_violation THEN NULL;  -- another database of this server installs too
                WHEN insufficient_privilege THEN RAISE NOTICE 'role % was not created: no right to create roles', _role;
            END;
        END IF;
    END LOOP;
END;
$$;
