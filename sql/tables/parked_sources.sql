-- Sources that wait because their next event cannot be handled. The others flow on.
CREATE TABLE IF NOT EXISTS projections.parked_sources (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    event_type text NOT NULL,
    error text NOT NULL,
    attempts integer NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- waiting: for somebody to decide; retry: handle the event again; drop: go on after it.
    decision text NOT NULL DEFAULT 'waiting' CHECK (decision IN ('waiting', 'retry', 'drop')),
    -- File and line of what the handler raised; NULL where it was parked before this was kept.
    traceback text,
    PRIMARY KEY (projection_id, source_id)
);
-- A heartbeat asks whether somebody has decided, however many sources wait. Looks before, as that of events does.
DO $$
BEGIN
    IF to_regclass('projections.parked_sources_decided_idx') IS NULL THEN
        CREATE INDEX parked_sources_decided_idx ON projections.parked_sources (projection_id) WHERE decision <> 'waiting';
    END IF;
END;
$$;
