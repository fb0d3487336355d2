-- The slice ranges of a projection; they tile 0..1023. A worker that holds a range knows its epoch, and every
-- transaction that it commits checks that epoch here: a lease keeps things moving, the epoch keeps them right.
CREATE TABLE IF NOT EXISTS projections.projection_ranges (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    -- Who holds it: a worker, as long as that one's lease runs.
    owner text,
    -- Who is to hold it: the owner gives it up to that worker.
    assigned_to text,
    claimed_at timestamptz,
    -- The settled horizon: no event before it can appear any more, and all of them are handled.
    horizon timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- The last import that the horizon accounts for.
    import_id bigint NOT NULL DEFAULT 0,
    -- The newest db_timestamp of a handled event, and when the last batch was committed.
    handled_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    handled_at timestamptz,
    -- Events handled since the projection was made; a cut keeps the sum over all ranges.
    handled bigint NOT NULL DEFAULT 0,
    -- Failures in a row, the last one's error, and when the range starts again.
    failures integer NOT NULL DEFAULT 0,
    error text,
    restarts_at timestamptz,
    -- How often progress was stored. Whoever stores it sends the count that it remembers: another one here means that the
    -- database went back in time, and that what it remembers is worth nothing.
    commits bigint NOT NULL DEFAULT 0,
    -- Of a journal in another database, its life (server, timeline, start) when the offsets were last seen to fit it. In another
    -- life it may have lost what is handled here.
    journal_life text,
    PRIMARY KEY (projection_id, min_slice),
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
