-- Interests in events. Asking for the same thing again is the same subscription.
CREATE TABLE IF NOT EXISTS projections.subscriptions (
    subscription_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    -- None: every event that the lists below let through.
    condition_id integer REFERENCES projections.conditions,
    params jsonb NOT NULL,
    -- Event types, or event types and patterns of them; neither: all.
    topics text[],
    patterns text[],
    entity_types text[],
    -- How long it may be unused; NULL: forever.
    expires_after interval,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What matches the log passes over events of before. While it catches up: infinity, and it has none of them from there.
    since timestamptz NOT NULL,
    -- All of the above that tells it from others.
    identity jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What _topic_patterns_v1 makes of the patterns.
    likes text[],
    regexes text[],
    -- While it catches up with the past: the time from which on events are for it.
    starts_at timestamptz,
    EXCLUDE USING hash (identity WITH =)
);
DO $$
BEGIN
    IF to_regclass('projections.subscriptions_interests_idx') IS NULL THEN
        -- Matching reads them far more often than somebody subscribes: without a list of pending entries.
        CREATE INDEX subscriptions_interests_idx ON projections.subscriptions
        USING gin (params jsonb_path_ops, topics) WITH (fastupdate = FALSE);
    END IF;
    IF to_regclass('projections.subscriptions_since_idx') IS NULL THEN
        CREATE INDEX subscriptions_since_idx ON projections.subscriptions (since);
    END IF;
    IF to_regclass('projections.subscriptions_starts_at_idx') IS NULL THEN
        CREATE INDEX subscriptions_starts_at_idx ON projections.subscriptions (subscription_id) WHERE starts_at IS NOT NULL;
    END IF;
    IF to_regclass('projections.subscriptions_open_idx') IS NULL THEN
        CREATE INDEX subscriptions_open_idx ON projections.subscriptions (condition_id, subscription_id) WHERE topics IS NULL;
    END IF;
END;
$$;
