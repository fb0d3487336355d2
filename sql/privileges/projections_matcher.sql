-- What conditions of subscriptions run as: it sees the event and the subscription that it is asked about, and nothing else. It
-- owns the function that makes conditions, and so the functions that are made.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_matcher') THEN
        RAISE NOTICE 'role projections_matcher does not exist: subscriptions cannot have conditions';
        RETURN;
    ELSIF to_regnamespace('projections_conditions') IS NULL THEN
        RETURN;
    END IF;
    -- To give a function to a role one must be able to become it (since PostgreSQL 16 who has created a role cannot, until
    -- he grants it to himself), and it must be allowed to have one here.
    IF NOT pg_has_role(
        'projections_matcher', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 'MEMBER' ELSE 'SET' END
    ) THEN
        GRANT projections_matcher TO CURRENT_USER;
    END IF;
    GRANT CREATE ON SCHEMA projections TO projections_matcher;
    ALTER FUNCTION projections._compile_condition_v1 OWNER TO projections_matcher;
    ALTER FUNCTION projections._drop_condition_v1 OWNER TO projections_matcher;
    REVOKE CREATE ON SCHEMA projections FROM projections_matcher;
    GRANT USAGE ON SCHEMA projections TO projections_matcher;
    GRANT CREATE, USAGE ON SCHEMA projections_conditions TO projections_matcher;
    GRANT SELECT ON
        projections.subscriptions_at_hand
    TO projections_matcher;
    GRANT EXECUTE ON FUNCTION
        projections._check_condition_v1,
        projections._check_condition_is_harmless_v1,
        projections._looks_up_params_v1,
        projections._make_condition_v1
    TO projections_matcher;
EXCEPTION
    WHEN insufficient_privilege THEN
        RAISE NOTICE 'subscriptions cannot have conditions: % may not give functions to projections_matcher', current_user;
END;
$$;
