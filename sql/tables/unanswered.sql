-- Events that a condition has failed on: each has its place here until the condition says yes or no to it, or somebody gives it up.
CREATE TABLE IF NOT EXISTS projections.unanswered (
    -- In this order a condition is asked.
    unanswered_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    condition_id integer NOT NULL REFERENCES projections.conditions ON DELETE CASCADE,
    entity_type text COLLATE "C" NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL,
    topic text NOT NULL,
    -- The event is for the subscriptions of this time.
    as_of timestamptz NOT NULL,
    error text,
    -- Whether the condition is to be asked, as soon as it is not stopped.
    due boolean NOT NULL,
    set_apart_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- It is for that subscription alone, which catches up; NULL: for all.
    subscription_id bigint REFERENCES projections.subscriptions ON DELETE CASCADE
);
DO $$
BEGIN
    IF to_regclass('projections.unanswered_idx') IS NULL THEN
        CREATE UNIQUE INDEX unanswered_idx ON projections.unanswered (condition_id, source_id, seq_nr, coalesce(subscription_id, 0));
    END IF;
    IF to_regclass('projections.unanswered_subscription_id_idx') IS NULL THEN
        CREATE INDEX unanswered_subscription_id_idx ON projections.unanswered (subscription_id) WHERE subscription_id IS NOT NULL;
    END IF;
    IF to_regclass('projections.unanswered_due_idx') IS NULL THEN
        CREATE INDEX unanswered_due_idx ON projections.unanswered (condition_id, unanswered_id) WHERE due;
    END IF;
    -- They are counted.
    IF to_regclass('projections.unanswered_failed_idx') IS NULL THEN
        CREATE INDEX unanswered_failed_idx ON projections.unanswered (condition_id) WHERE NOT due;
    END IF;
    -- What retention has to keep is found without going through all.
    IF to_regclass('projections.unanswered_db_timestamp_idx') IS NULL THEN
        CREATE INDEX unanswered_db_timestamp_idx ON projections.unanswered (condition_id, db_timestamp);
    END IF;
END;
$$;
