-- The log: insert-only, partitioned by time so that old events leave by dropping a table.
CREATE TABLE IF NOT EXISTS projections.events (
    db_timestamp timestamptz NOT NULL,
    seq_nr bigint NOT NULL,
    event_id uuid NOT NULL,
    slice smallint NOT NULL,
    version smallint NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    entity_type text COLLATE "C" NOT NULL,
    event_type text NOT NULL,
    -- json, not jsonb: the text stays as it was written, key order and numbers included (docs/decisions).
    payload json NOT NULL,
    metadata json,
    tags text[],
    -- Before 1970 a UUIDv7 has no time, and after year 9999 most languages have none.
    CONSTRAINT db_timestamp_between_1970_and_9999
    CHECK (db_timestamp > '1970-01-01T00:00:00Z' AND db_timestamp < '9999-01-01T00:00:00Z'),
    CONSTRAINT seq_nr_is_positive CHECK (seq_nr > 0),
    CONSTRAINT event_type_has_1_to_255_characters CHECK (char_length(event_type) BETWEEN 1 AND 255),
    CONSTRAINT json_has_at_most_16_mib CHECK (pg_column_size(payload) <= 16777220 AND pg_column_size(metadata) <= 16777220),
    CONSTRAINT tags_are_strings CHECK (array_position(tags, NULL) IS NULL),
    PRIMARY KEY (source_id, seq_nr, db_timestamp)
) PARTITION BY RANGE (db_timestamp);

-- Walks one entity type in time order and checks the slice inside the index, so a batch costs the same however much
-- lies behind it; the last two columns make the order total, so that a page may end between equal timestamps.
-- Asks before: CREATE INDEX IF NOT EXISTS takes its lock first, and a reinstall would wait for every open append.
DO $$
BEGIN
    IF to_regclass('projections.events_by_time_idx') IS NULL THEN
        CREATE INDEX events_by_time_idx ON projections.events (entity_type, db_timestamp, slice, source_id, seq_nr);
    END IF;
    IF to_regclass('projections.events_event_id_idx') IS NULL THEN
        CREATE INDEX events_event_id_idx ON projections.events (event_id);
    END IF;
END;
$$;

-- Takes what no other partition takes: a missed maintenance run never stops a writer.
CREATE TABLE IF NOT EXISTS projections.events_default PARTITION OF projections.events DEFAULT;
