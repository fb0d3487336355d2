-- The slice ranges that the tasks of a rebuild fold, each in the order of its sources. A task moves the position in the
-- transaction of its effects: one that is repeated, or runs twice at once, goes on where the position is.
CREATE TABLE IF NOT EXISTS projections.rebuild_parts (
    rebuild_id integer NOT NULL REFERENCES projections.rebuilds ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    source_id text COLLATE "C" NOT NULL DEFAULT '',
    seq_nr bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    done boolean NOT NULL DEFAULT FALSE,
    -- Why it cannot go on, whoever tries.
    error text,
    PRIMARY KEY (rebuild_id, min_slice)
) WITH (fillfactor = 20);
