-- The last handled event of each source: what makes a second reading of an event harmless.
-- Without a foreign key to projections: checking it would double what a new source costs, and what
-- writes here (save_offsets_v1, _begin_inline_v1) has seen the projection under a lock that removing it needs.
CREATE TABLE IF NOT EXISTS projections.source_offsets (
    projection_id integer NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
