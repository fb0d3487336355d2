-- The slice ranges of a group; they tile 0..1023. Each has a cursor, and at a time one reader, which knows its epoch.
-- A handler that a reader of the range did not have has a range of its own: it is read for that handler alone, by who
-- has it, and goes when both are equally far.
CREATE TABLE IF NOT EXISTS projections.group_ranges (
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    -- Everything that matched up to here was handled.
    cursor bigint NOT NULL DEFAULT 0,
    moved_at timestamptz,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    -- NULL: for all handlers that have none of their own.
    handler_id integer REFERENCES projections.group_handlers ON DELETE CASCADE,
    -- Who is to hold it: the owner gives it up to that reader.
    assigned_to text,
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
DO $$
BEGIN
    IF to_regclass('projections.group_ranges_idx') IS NULL THEN
        CREATE UNIQUE INDEX group_ranges_idx ON projections.group_ranges (group_id, min_slice, coalesce(handler_id, 0));
    END IF;
END;
$$;
