-- Everything of this library lives in one schema, so that it can be granted, dumped and dropped as a whole.
CREATE SCHEMA IF NOT EXISTS projections;
COMMENT ON SCHEMA projections IS 'slice-projections: journal, offsets and their functions';
