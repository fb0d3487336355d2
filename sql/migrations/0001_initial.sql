-- The tables as first released. A migration never changes after its release: write the next one instead.
CREATE TABLE projections.schema_versions (
    version integer PRIMARY KEY,
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE projections.sources (
    source_id text COLLATE "C" PRIMARY KEY,
    entity_type text NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    CONSTRAINT source_id_has_1_to_255_characters CHECK (char_length(source_id) BETWEEN 1 AND 255),
    CONSTRAINT entity_type_has_1_to_255_characters CHECK (char_length(entity_type) BETWEEN 1 AND 255)
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05
);

CREATE TABLE projections.events (
    db_timestamp timestamptz NOT NULL,
    seq_nr bigint NOT NULL,
    event_id uuid NOT NULL,
    slice smallint NOT NULL,
    version smallint NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    entity_type text COLLATE "C" NOT NULL,
    event_type text NOT NULL,
    payload json NOT NULL,
    metadata json,
    tags text[],
    CONSTRAINT db_timestamp_between_1970_and_9999
    CHECK (db_timestamp > '1970-01-01T00:00:00Z' AND db_timestamp < '9999-01-01T00:00:00Z'),
    CONSTRAINT seq_nr_is_positive CHECK (seq_nr > 0),
    CONSTRAINT event_type_has_1_to_255_characters CHECK (char_length(event_type) BETWEEN 1 AND 255),
    CONSTRAINT json_has_at_most_16_mib CHECK (pg_column_size(payload) <= 16777220 AND pg_column_size(metadata) <= 16777220),
    CONSTRAINT tags_are_strings CHECK (array_position(tags, NULL) IS NULL),
    PRIMARY KEY (source_id, seq_nr, db_timestamp)
) PARTITION BY RANGE (db_timestamp);
CREATE INDEX events_by_time_idx
ON projections.events (entity_type, db_timestamp, slice, source_id, seq_nr);
CREATE INDEX events_event_id_idx
ON projections.events (event_id);
CREATE TABLE projections.events_default PARTITION OF projections.events DEFAULT;

CREATE TABLE projections.imports (
    import_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    entity_type text NOT NULL,
    from_timestamp timestamptz NOT NULL,
    events bigint NOT NULL,
    imported_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE TABLE projections.projections (
    projection_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    entity_type text NOT NULL,
    paused boolean NOT NULL DEFAULT FALSE,
    version integer NOT NULL DEFAULT 1,
    evicted_before timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255)
);

CREATE TABLE projections.workers (
    owner text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    projection_ids integer[] NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    leaving boolean NOT NULL DEFAULT FALSE
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE projections.projection_ranges (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    assigned_to text,
    claimed_at timestamptz,
    horizon timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    import_id bigint NOT NULL DEFAULT 0,
    handled_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    handled_at timestamptz,
    handled bigint NOT NULL DEFAULT 0,
    failures integer NOT NULL DEFAULT 0,
    error text,
    restarts_at timestamptz,
    PRIMARY KEY (projection_id, min_slice),
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE projections.source_offsets (
    projection_id integer NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);

CREATE TABLE projections.parked_sources (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    source_id text COLLATE "C" NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    event_type text NOT NULL,
    error text NOT NULL,
    attempts integer NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    decision text NOT NULL DEFAULT 'waiting' CHECK (decision IN ('waiting', 'retry', 'drop')),
    PRIMARY KEY (projection_id, source_id)
);

CREATE TABLE projections.rebuilds (
    rebuild_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    version integer NOT NULL,
    fence timestamptz NOT NULL,
    import_id bigint NOT NULL,
    evicted_before timestamptz NOT NULL,
    fingerprint text NOT NULL,
    method text NOT NULL CHECK (method IN ('rename', 'replace')),
    state text NOT NULL DEFAULT 'folding' CHECK (state IN ('folding', 'verified', 'swapped', 'cancelled', 'dropped')),
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    swapped_at timestamptz,
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
);
CREATE UNIQUE INDEX rebuilds_unfinished_idx
ON projections.rebuilds (projection_id) WHERE state IN ('folding', 'verified');

CREATE TABLE projections.rebuild_parts (
    rebuild_id integer NOT NULL REFERENCES projections.rebuilds ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    source_id text COLLATE "C" NOT NULL DEFAULT '',
    seq_nr bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    done boolean NOT NULL DEFAULT FALSE,
    error text,
    PRIMARY KEY (rebuild_id, min_slice)
) WITH (fillfactor = 20);

CREATE TABLE projections.rebuild_tables (
    rebuild_id integer NOT NULL REFERENCES projections.rebuilds ON DELETE CASCADE,
    place integer NOT NULL,
    schema_name text NOT NULL,
    table_name text NOT NULL,
    table_oid oid NOT NULL,
    shape text NOT NULL,
    source_column text,
    PRIMARY KEY (rebuild_id, place)
);
