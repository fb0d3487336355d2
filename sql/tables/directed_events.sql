-- Published events that are for one subscription alone, or for later. One for later is matched when it is due, by whoever
-- looks first; it leaves when the reader of the log has come by it, too.
CREATE TABLE IF NOT EXISTS projections.directed_events (
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL,
    topic text NOT NULL,
    subscription_id bigint,
    not_before timestamptz,
    matched boolean NOT NULL DEFAULT FALSE,
    passed boolean NOT NULL DEFAULT FALSE,
    PRIMARY KEY (source_id, seq_nr)
);
DO $$
BEGIN
    IF to_regclass('projections.directed_events_due_idx') IS NULL THEN
        CREATE INDEX directed_events_due_idx ON projections.directed_events (not_before) WHERE NOT matched;
    END IF;
END;
$$;
