-- Progress is stored by compare and set.
ALTER TABLE projections.projection_ranges ADD COLUMN commits bigint NOT NULL DEFAULT 0;
-- Functions whose result changed: they are made again as they are now.
DROP FUNCTION IF EXISTS projections.poll_writers_v1(bigint, text[], timestamptz[]);
DROP FUNCTION IF EXISTS projections.predecessors_v1(text[], bigint[]);
