-- Progress is stored by compare and set.
ALTER TABLE projections.projection_ranges ADD COLUMN commits bigint NOT NULL DEFAULT 0;
-- Functions whose result changed: they are made again as they are now.
DROP FUNCTION IF EXISTS projections.poll_writers_v1(bigint, text[], timestamptz[]);
DROP FUNCTION IF EXISTS projections.predecessors_v1(text[], bigint[]);
DROP FUNCTION IF EXISTS projections.slice_lag_v1(integer);
-- Which entity types there are is asked all the time: of sources, for events have many partitions.
CREATE INDEX sources_entity_type_idx ON projections.sources (entity_type);
