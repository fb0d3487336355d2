-- Every import of history. Its events are older than what readers have passed: they go back to from_timestamp.
CREATE TABLE IF NOT EXISTS projections.imports (
    import_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_type text NOT NULL,
    from_timestamp timestamptz NOT NULL,
    events bigint NOT NULL,
    imported_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
