-- Removes the subscriptions that nobody uses, and then the conditions that no subscription has; returns how many subscriptions.
CREATE OR REPLACE FUNCTION projections._hook_maintain_subscriptions_v1()
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _expired CONSTANT bigint := projections._expire_subscriptions_v1();
BEGIN
    PERFORM projections._forget_conditions_v1();
    RETURN _expired;
END;
$$;
