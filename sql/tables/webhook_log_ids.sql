-- Where in time the rows of the delivery log are: what makes their ids unique whatever the time (a key of a table that is
-- partitioned by time has to have the time in it), and an id found without asking every partition.
CREATE TABLE IF NOT EXISTS projections.webhook_log_ids (
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    row_time timestamptz NOT NULL,
    CONSTRAINT kind_is_event_or_attempt CHECK (kind IN ('event', 'attempt')),
    CONSTRAINT id_has_1_to_255_bytes CHECK (octet_length(id) BETWEEN 1 AND 255),
    PRIMARY KEY (id, kind)
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_log_ids_row_time_idx') IS NULL THEN
        -- Finds those whose rows have left. BRIN would be smaller, until freed pages take new rows: it never forgets old bounds.
        CREATE INDEX webhook_log_ids_row_time_idx ON projections.webhook_log_ids (kind, row_time);
    END IF;
END;
$$;
