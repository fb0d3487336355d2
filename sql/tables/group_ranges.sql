-- The slice ranges of a group; they tile 0..1023. Each has a cursor, and at a time one reader, which knows its epoch.
CREATE TABLE IF NOT EXISTS projections.group_ranges (
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    -- Everything that matched up to here was handled.
    cursor bigint NOT NULL DEFAULT 0,
    moved_at timestamptz,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    PRIMARY KEY (group_id, min_slice),
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
