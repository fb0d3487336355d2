-- Subscriptions that catch up with the past: up to which event of its entity types its history was matched.
CREATE TABLE IF NOT EXISTS projections.subscription_history (
    subscription_id bigint PRIMARY KEY REFERENCES projections.subscriptions ON DELETE CASCADE,
    -- The last event that was looked at; before the first, the time at which the subscription starts.
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL DEFAULT 0,
    source_id text COLLATE "C" NOT NULL DEFAULT '',
    seq_nr bigint NOT NULL DEFAULT 0,
    -- For who watches: how many events it has looked at, from which on, and since when.
    events bigint NOT NULL DEFAULT 0,
    first_event timestamptz,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
