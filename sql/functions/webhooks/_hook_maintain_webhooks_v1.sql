-- Removes, of the delivery log, where rows were that have left with their partition; returns how many.
CREATE OR REPLACE FUNCTION projections._hook_maintain_webhooks_v1()
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT projections._forget_logged_ids_v1()::bigint
$$;
