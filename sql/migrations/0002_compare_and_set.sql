-- Progress is stored by compare and set.
ALTER TABLE projections.projection_ranges ADD COLUMN commits bigint NOT NULL DEFAULT 0;
