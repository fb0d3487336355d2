-- The tables of a rebuild. A clone of each is in the schema projections_rebuild_<id>, and after the swap the old one in
-- projections_old_<id>, under their own names.
CREATE TABLE IF NOT EXISTS projections.rebuild_tables (
    rebuild_id integer NOT NULL REFERENCES projections.rebuilds ON DELETE CASCADE,
    place integer NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    -- What it was when the rebuild began.
    table_oid oid NOT NULL,
    shape text NOT NULL,
    -- The column that holds the source's id, when a range of slices can be told by it.
    source_column text,
    -- What the Table declares, and the key of it; NULL where a handler writes by itself.
    columns text[],
    key_columns text[],
    PRIMARY KEY (rebuild_id, place)
);
