-- What was matched while conditions were stopped, or were catching up: a page for each batch, of the events that any of them is
-- still to be asked about. A page is for the conditions that it names; each has its own place among the pages
-- (projections.conditions.unasked_from), and pages that all have passed are deleted.
CREATE TABLE IF NOT EXISTS projections.unasked (
    -- Drawn from projections.match_ids, under the lock of whoever writes matches: settled_matches_v1 says up to which number
    -- none can appear any more.
    page_id bigint PRIMARY KEY,
    -- Side by side with entity_types: a condition, and a topic of a type of which it is to be asked about every event; NULL: all topics.
    condition_ids integer[] NOT NULL,
    topics text[] NOT NULL,
    -- Side by side: the events, in their order. They are for the subscriptions of the times in as_of; NULL: when they were
    -- committed.
    source_ids text[] COLLATE "C" NOT NULL,
    seq_nrs bigint[] NOT NULL,
    db_timestamps timestamptz[] NOT NULL,
    as_of timestamptz[],
    -- The oldest and the newest of db_timestamps.
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    entity_types text[] COLLATE "C" NOT NULL
);
