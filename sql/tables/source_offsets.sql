-- The last handled event of each source: what makes a second reading of an event harmless.
CREATE TABLE IF NOT EXISTS projections.source_offsets (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
