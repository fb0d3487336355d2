-- Batches that a handler failed on: to be handled again when they are due, or dead and waiting for a person. They carry
-- their events, so that retention of the log takes nothing away from them.
CREATE TABLE IF NOT EXISTS projections.group_retries (
    retry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    handler text NOT NULL,
    first_match_id bigint NOT NULL,
    last_match_id bigint NOT NULL,
    -- How often it has been tried.
    attempts integer NOT NULL,
    error text NOT NULL,
    -- NULL: dead.
    due_at timestamptz,
    failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    matches json NOT NULL,
    -- A digest of the numbers of its matches and the ids of their events: the same batch is kept once, also when its reader
    -- was killed before its cursor moved. First and last do not tell it: slices that were cut again may have other matches
    -- between the same two. Nor do numbers alone: they are given out again after a fail-over.
    digest bytea NOT NULL,
    UNIQUE (group_id, handler, digest)
);
DO $$
BEGIN
    IF to_regclass('projections.group_retries_due_idx') IS NULL THEN
        CREATE INDEX group_retries_due_idx ON projections.group_retries (group_id, due_at);
    END IF;
END;
$$;
