-- The slice ranges of a projection; they tile 0..1023. A worker that holds a range knows its epoch, and every
-- transaction that it commits checks that epoch here: a lease keeps things moving, the epoch keeps them right.
CREATE TABLE IF NOT EXISTS projections.projection_ranges (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    lease_until timestamptz,
    -- The settled horizon: no event before it can appear any more, and all of them are handled.
    horizon timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- The last import that the horizon accounts for.
    import_id bigint NOT NULL DEFAULT 0,
    handled_at timestamptz,
    PRIMARY KEY (projection_id, min_slice),
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
