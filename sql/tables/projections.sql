CREATE TABLE IF NOT EXISTS projections.projections (
    projection_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- One that reads several journals has a row of this name for each: a part of it, with ranges and offsets of its own.
    name text NOT NULL,
    paused boolean NOT NULL DEFAULT FALSE,
    -- Which version of its code it runs: workers of another wait, until a rebuild by theirs is swapped in.
    version integer NOT NULL DEFAULT 1,
    -- Offsets of sources whose last handled event is older than this may be gone: such an event counts as handled.
    evicted_before timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Somebody waits for events to be handled: until then, workers notify after each batch (_handled_v1).
    waited_until timestamptz,
    -- Inline: whoever appends handles the events in the same transaction, where it can (_begin_inline_v1); workers handle the rest.
    mode text NOT NULL DEFAULT 'live',
    -- Whose events it reads, each type once and in order; NULL: those of every type, also of those that are added later.
    entity_types text[] COLLATE "C",
    -- The name of the journal that it reads, where that is in another database; NULL: the one that is here.
    journal text,
    CONSTRAINT name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255),
    CONSTRAINT known_mode CHECK (mode IN ('live', 'inline')),
    CONSTRAINT entity_types_are_some CHECK (cardinality(entity_types) > 0),
    -- Who appends elsewhere cannot handle here in the same transaction.
    CONSTRAINT inline_reads_here CHECK (journal IS NULL OR mode = 'live')
);
-- By name, and what a part of it is called after @. Looks before, as that of events does.
DO $$
BEGIN
    IF to_regclass('projections.projections_name_idx') IS NULL THEN
        CREATE UNIQUE INDEX projections_name_idx ON projections.projections (name, coalesce(journal, 'journal'));
    END IF;
END;
$$;
