-- Batch projections: each builds a range of a read model again, alongside the one that serves, and then takes its place.
CREATE TABLE IF NOT EXISTS projections.rebuilds (
    rebuild_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    -- The version of the projection that builds it.
    version integer NOT NULL,
    -- The cut: events up to this time, of imports up to this one. Live workers go on from here.
    fence timestamptz NOT NULL,
    import_id bigint NOT NULL,
    -- Of the projection when it began: whoever sets the offset meanwhile wants something else.
    evicted_before timestamptz NOT NULL,
    -- Tells the code that folds: what another code has begun cannot be gone on with.
    fingerprint text NOT NULL,
    -- rename: the new tables take the place of the old; replace: the rows do.
    method text NOT NULL CHECK (method IN ('rename', 'replace')),
    state text NOT NULL DEFAULT 'folding' CHECK (state IN ('folding', 'verified', 'swapped', 'cancelled', 'dropped')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    swapped_at timestamptz,
    -- The database's timeline when it began: what was folded before a fail-over or a restore may be of events that are gone.
    timeline integer,
    -- How often the process that leads it has looked: it notices an older state of the database by that.
    beats bigint NOT NULL DEFAULT 0,
    -- What the projection reads from the swap on, and what the rebuild reads; NULL: every type.
    entity_types text[] COLLATE "C",
    -- The life of a journal in another database at the fence: in that, nothing that was read is lost.
    journal_life text,
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
);
CREATE UNIQUE INDEX IF NOT EXISTS rebuilds_unfinished_idx
ON projections.rebuilds (projection_id) WHERE state IN ('folding', 'verified');
