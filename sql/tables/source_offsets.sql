-- The last handled event of each source: what makes a second reading of an event harmless.
-- Without a foreign key to projections: checking it would double what a new source costs, and only
-- save_offsets_v1 writes here, for a range that has one.
CREATE TABLE IF NOT EXISTS projections.source_offsets (
    projection_id integer NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
