-- The distinct conditions of subscriptions. Each has a function of its own in the schema projections_conditions.
CREATE TABLE IF NOT EXISTS projections.conditions (
    condition_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sql text NOT NULL,
    -- Whether it looks at nothing of an event but its type: then it is asked once for all events of a type.
    of_types boolean NOT NULL,
    -- When it was stopped: it is asked no more, and what it was to be asked waits in projections.unasked.
    quarantined_at timestamptz,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- How many events it failed on beyond those that it has answered since the first of them.
    failures integer NOT NULL DEFAULT 0,
    -- The page of projections.unasked from which on it has not been asked, and how many events of that page it has; NULL: it was
    -- never stopped. It is behind while a page from there on names it.
    unasked_from bigint,
    unasked_skip integer NOT NULL DEFAULT 0,
    -- The version of the schema whose rules have accepted it.
    checked integer NOT NULL DEFAULT 0,
    -- Exact, and for texts of any length: a hash index compares the texts themselves, too.
    EXCLUDE USING hash (sql WITH =)
);
