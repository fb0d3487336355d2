-- One row for each migration that this database has; the highest number is the schema's version.
CREATE TABLE IF NOT EXISTS projections.schema_versions (
    version integer PRIMARY KEY,
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
