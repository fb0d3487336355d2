-- The statements of read models that are declared in SQL, as the workers of a version of a projection have them. For people.
CREATE TABLE IF NOT EXISTS projections.read_models (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    version integer NOT NULL,
    -- What the class calls it, and the table that it fills.
    name text NOT NULL,
    table_name text NOT NULL,
    statement text NOT NULL,
    PRIMARY KEY (projection_id, version, name)
);
