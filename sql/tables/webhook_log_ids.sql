-- Where in time the rows of the delivery log are: what makes their ids unique whatever the time (a key of a table that is
-- partitioned by time has to have the time in it), and an id found without asking every partition.
CREATE TABLE IF NOT EXISTS projections.webhook_log_ids (
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    row_time timestamptz NOT NULL,
    CONSTRAINT kind_is_event_or_attempt CHECK (kind IN ('event', 'attempt')),
    PRIMARY KEY (id, kind)
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_log_ids_row_time_idx') IS NULL THEN
        -- Ids come in the order of time, more or less: finding the old ones costs a page in thousands.
        CREATE INDEX webhook_log_ids_row_time_idx ON projections.webhook_log_ids USING brin (row_time) WITH (autosummarize = TRUE);
    END IF;
END;
$$;
