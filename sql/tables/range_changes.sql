-- What happened to the ranges of a projection, the newest 50 changes of each: how often its slices were cut again, and which worker
-- took ranges over from one that is gone. For people. It refers to no projection: a heartbeat that notes something must not wait for
-- one that is being removed.
CREATE TABLE IF NOT EXISTS projections.range_changes (
    projection_id integer NOT NULL,
    change_id bigint GENERATED ALWAYS AS IDENTITY,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- rescaled: cut again, into this number of ranges; taken over: this number of them, from a worker whose lease had ended; taken by
    -- order: all of them, from whoever had them.
    kind text NOT NULL CHECK (kind IN ('rescaled', 'taken over', 'taken by order')),
    ranges integer NOT NULL,
    -- How many there were before a cut.
    ranges_before integer,
    taken_from text,
    taken_by text,
    PRIMARY KEY (projection_id, change_id)
);
