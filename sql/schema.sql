-- Everything of this library lives in one schema, so that it can be granted, dumped and dropped as a whole.
-- An existing one is left alone: CREATE SCHEMA IF NOT EXISTS asks for rights on the database even then.
DO $$
BEGIN
    IF to_regnamespace('projections') IS NULL THEN
        CREATE SCHEMA projections;
        COMMENT ON SCHEMA projections IS 'slice-projections: journal, offsets and their functions';
    END IF;
    -- Theirs alone, for what is made there is made of users' texts.
    IF to_regnamespace('projections_conditions') IS NULL THEN
        CREATE SCHEMA projections_conditions;
        COMMENT ON SCHEMA projections_conditions IS 'slice-projections: the conditions of subscriptions as functions';
    END IF;
EXCEPTION
    WHEN insufficient_privilege THEN
        IF to_regnamespace('projections') IS NULL THEN
            RAISE;
        END IF;
        RAISE NOTICE 'schema projections_conditions was not created: no right to create schemas: subscriptions cannot have conditions';
END;
$$;
