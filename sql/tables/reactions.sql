-- The last event of each source that a projection has reacted to. Apart from its offsets: a rebuild, and whoever sets an offset, move
-- those back, and no event is reacted to twice. A row stays as long as the projection.
CREATE TABLE IF NOT EXISTS projections.reactions (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
