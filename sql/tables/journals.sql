-- Journals of other systems that are read by a name (`projections journals`). Whoever writes here says where workers connect to, and
-- which SQL they run there: only the owner does.
CREATE TABLE IF NOT EXISTS projections.journals (
    name text PRIMARY KEY,
    kind text NOT NULL,
    -- What is said about its kind, as TOML: the mapping of a table, or its name and the like.
    mapping text NOT NULL,
    -- Where it is: a DSN without a password, or the environment variable of each process that has one.
    dsn text,
    dsn_variable text,
    attached_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The name journal is that of our own in another database.
    CONSTRAINT name_is_plain CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' AND name <> 'journal'),
    CONSTRAINT one_place CHECK (num_nonnulls(dsn, dsn_variable) = 1)
);
