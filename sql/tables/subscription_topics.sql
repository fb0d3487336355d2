-- The topics that subscriptions name, for finding those that name one.
CREATE TABLE IF NOT EXISTS projections.subscription_topics (
    topic text COLLATE "C" NOT NULL,
    subscription_id bigint NOT NULL REFERENCES projections.subscriptions ON DELETE CASCADE,
    PRIMARY KEY (topic, subscription_id)
);
DO $$
BEGIN
    IF to_regclass('projections.subscription_topics_subscription_id_idx') IS NULL THEN
        CREATE INDEX subscription_topics_subscription_id_idx ON projections.subscription_topics (subscription_id);
    END IF;
END;
$$;
