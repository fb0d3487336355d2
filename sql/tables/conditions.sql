-- The distinct conditions of subscriptions. Each has a function of its own in the schema projections_conditions.
CREATE TABLE IF NOT EXISTS projections.conditions (
    condition_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sql text NOT NULL,
    -- Whether it looks at nothing of an event but its type: then it is asked once for all events of a type.
    of_types boolean NOT NULL,
    -- It failed or took too long where it was asked, and is asked no more.
    quarantined_at timestamptz,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Exact, and for texts of any length: a hash index compares the texts themselves, too.
    EXCLUDE USING hash (sql WITH =)
);
