-- Where each source stands. Appending locks its row: that makes numbers gapless and timestamps strictly increasing
-- although the log is partitioned. ROW EXCLUSIVE on this table, held to the end of a transaction, is how readers
-- know that an append is in flight, so nothing but the append and import functions may write here.
CREATE TABLE IF NOT EXISTS projections.sources (
    source_id text COLLATE "C" PRIMARY KEY,
    entity_type text NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    CONSTRAINT source_id_has_1_to_255_characters CHECK (char_length(source_id) BETWEEN 1 AND 255),
    CONSTRAINT entity_type_has_1_to_255_characters CHECK (char_length(entity_type) BETWEEN 1 AND 255),
    -- Whoever reads events names one type: as a pattern it would be refused.
    CONSTRAINT entity_type_is_no_pattern CHECK (strpos(entity_type, '*') = 0)
) WITH (
    -- No index covers what an append changes: with room on the page the update stays there (HOT).
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05
);
-- For who asks which entity types there are, and no partition of events is opened for it. An append changes nothing here.
-- Asks before, as those of events.
DO $$
BEGIN
    IF to_regclass('projections.sources_entity_type_idx') IS NULL THEN
        CREATE INDEX sources_entity_type_idx ON projections.sources (entity_type);
    END IF;
END;
$$;
