-- Which handlers consumers of a group have, and the subscription that each is for: what has matched for one is kept for it
-- while no process has it. A handler whose subscription was changed is there with both.
CREATE TABLE IF NOT EXISTS projections.group_handlers (
    handler_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    subscription_id bigint NOT NULL REFERENCES projections.subscriptions ON DELETE CASCADE,
    name text NOT NULL,
    UNIQUE (subscription_id, name)
);
DO $$
BEGIN
    IF to_regclass('projections.group_handlers_group_id_idx') IS NULL THEN
        CREATE INDEX group_handlers_group_id_idx ON projections.group_handlers (group_id);
    END IF;
END;
$$;
