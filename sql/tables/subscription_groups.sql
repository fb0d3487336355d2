-- Consumers that share progress.
CREATE TABLE IF NOT EXISTS projections.subscription_groups (
    group_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    -- Whether it has cursors that must reach every match; else it only listens, and nothing is kept for it.
    reliable boolean NOT NULL DEFAULT TRUE,
    -- Matches up to here were dropped with their partitions.
    dropped_until bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- From which time on subscriptions get events that do not say so themselves; infinity: from when they are made.
    starts_at timestamptz NOT NULL DEFAULT 'infinity',
    CONSTRAINT name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255)
);
