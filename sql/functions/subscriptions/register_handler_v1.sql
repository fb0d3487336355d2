-- Says that consumers of a group have a handler, by its name, and which subscription it is for; returns its number. From then
-- on, what matches for it is kept for it while no process has it: _set_handlers_apart_v1.
CREATE OR REPLACE FUNCTION projections.register_handler_v1(p_group text, p_name text, p_subscription_id bigint)
RETURNS integer
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO projections.group_handlers AS h (group_id, subscription_id, name)
    SELECT g.group_id, p_subscription_id, p_name FROM projections.subscription_groups AS g WHERE g.name = p_group
    ON CONFLICT (subscription_id, name) DO UPDATE SET name = excluded.name
    RETURNING h.handler_id
$$;
