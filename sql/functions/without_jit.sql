-- What holds for every function of ours that has settings, and so for all but the few that are inlined: it runs without
-- JIT. They run all the time and are over in milliseconds; compiling what a batch runs takes seconds, each time, for it is
-- the planner's guess that decides, and that can be as wrong as its statistics are. What a function calls, such as the
-- conditions of subscriptions, runs without JIT, too. docs/decisions/plans.md
DO $$
DECLARE
    _function text;
BEGIN
    FOR _function IN
        SELECT p.oid::regprocedure FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'projections'::regnamespace AND p.proconfig IS NOT NULL AND NOT 'jit=off' = ANY (p.proconfig)
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET jit = off', _function);
    END LOOP;
END;
$$;
