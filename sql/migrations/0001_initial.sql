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

CREATE TABLE projections.subscription_groups (
    group_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    reliable boolean NOT NULL DEFAULT TRUE,
    dropped_until bigint NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_has_1_to_255_characters CHECK (char_length(name) BETWEEN 1 AND 255)
);

CREATE TABLE projections.group_ranges (
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    min_slice smallint NOT NULL,
    max_slice smallint NOT NULL,
    cursor bigint NOT NULL DEFAULT 0,
    moved_at timestamptz,
    epoch bigint NOT NULL DEFAULT 0,
    owner text,
    PRIMARY KEY (group_id, min_slice),
    CONSTRAINT slices_in_order CHECK (0 <= min_slice AND min_slice <= max_slice AND max_slice <= 1023)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE projections.group_readers (
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    owner text NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    PRIMARY KEY (group_id, owner)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

CREATE TABLE projections.group_retries (
    retry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    handler text NOT NULL,
    first_match_id bigint NOT NULL,
    last_match_id bigint NOT NULL,
    attempts integer NOT NULL,
    error text NOT NULL,
    due_at timestamptz,
    failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    matches json NOT NULL,
    digest bytea NOT NULL,
    UNIQUE (group_id, handler, digest)
);
CREATE INDEX group_retries_due_idx ON projections.group_retries (group_id, due_at);

CREATE TABLE projections.conditions (
    condition_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    sql text NOT NULL,
    of_types boolean NOT NULL,
    quarantined_at timestamptz,
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    EXCLUDE USING hash (sql WITH =)
);

CREATE TABLE projections.subscriptions (
    subscription_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    condition_id integer REFERENCES projections.conditions,
    params jsonb NOT NULL,
    topics text[],
    patterns text[],
    entity_types text[],
    expires_after interval,
    active_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    since timestamptz NOT NULL,
    identity jsonb NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    EXCLUDE USING hash (identity WITH =)
);
CREATE INDEX subscriptions_params_idx ON projections.subscriptions USING gin (params jsonb_path_ops) WITH (fastupdate = FALSE);
CREATE INDEX subscriptions_since_idx ON projections.subscriptions (since);
CREATE INDEX subscriptions_open_idx ON projections.subscriptions (condition_id, subscription_id) WHERE topics IS NULL;

CREATE TABLE projections.subscription_topics (
    topic text COLLATE "C" NOT NULL,
    subscription_id bigint NOT NULL REFERENCES projections.subscriptions ON DELETE CASCADE,
    PRIMARY KEY (topic, subscription_id)
);
CREATE INDEX subscription_topics_subscription_id_idx ON projections.subscription_topics (subscription_id);

CREATE SEQUENCE projections.match_ids;

CREATE TABLE projections.matches (
    match_id bigint NOT NULL,
    group_id integer NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    matched_at timestamptz NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    subscription_ids bigint[] NOT NULL,
    PRIMARY KEY (group_id, match_id, slice, matched_at)
) PARTITION BY RANGE (matched_at);

CREATE TABLE projections.matches_default PARTITION OF projections.matches DEFAULT;

CREATE TABLE projections.directed_events (
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL,
    topic text NOT NULL,
    subscription_id bigint,
    not_before timestamptz,
    matched boolean NOT NULL DEFAULT FALSE,
    passed boolean NOT NULL DEFAULT FALSE,
    PRIMARY KEY (source_id, seq_nr)
);
CREATE INDEX directed_events_due_idx ON projections.directed_events (not_before) WHERE NOT matched;

CREATE TABLE projections.webhook_log_ids (
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    row_time timestamptz NOT NULL,
    CONSTRAINT kind_is_event_or_attempt CHECK (kind IN ('event', 'attempt')),
    CONSTRAINT id_has_1_to_255_bytes CHECK (octet_length(id) BETWEEN 1 AND 255),
    PRIMARY KEY (id, kind)
);
CREATE INDEX webhook_log_ids_row_time_idx ON projections.webhook_log_ids (kind, row_time);

CREATE TABLE projections.webhook_events (
    event_time timestamptz NOT NULL,
    eligible_for_retry boolean NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    endpoint_ids text[] COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    data text NOT NULL,
    PRIMARY KEY (event_time, event_id)
) PARTITION BY RANGE (event_time);
CREATE INDEX webhook_events_tenant_idx ON projections.webhook_events (tenant, event_time, event_id);
CREATE INDEX webhook_events_tenant_topic_idx ON projections.webhook_events (tenant, topic, event_time, event_id);
CREATE INDEX webhook_events_topic_idx ON projections.webhook_events (topic, event_time, event_id);
CREATE INDEX webhook_events_endpoint_ids_idx ON projections.webhook_events USING gin (endpoint_ids);

CREATE TABLE projections.webhook_events_default PARTITION OF projections.webhook_events DEFAULT;

CREATE TABLE projections.webhook_attempts (
    attempted_at timestamptz NOT NULL,
    event_time timestamptz NOT NULL,
    took interval,
    attempt_number integer NOT NULL,
    manual boolean NOT NULL,
    attempt_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    endpoint_type text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    code text COLLATE "C",
    response text,
    CONSTRAINT attempts_begin_with_1 CHECK (attempt_number >= 1),
    CONSTRAINT status_is_success_or_failed CHECK (status IN ('success', 'failed')),
    PRIMARY KEY (attempted_at, attempt_id)
) PARTITION BY RANGE (attempted_at);
CREATE INDEX webhook_attempts_tenant_idx ON projections.webhook_attempts (tenant, attempted_at, attempt_id);
CREATE INDEX webhook_attempts_tenant_topic_idx ON projections.webhook_attempts (tenant, topic, attempted_at, attempt_id);
CREATE INDEX webhook_attempts_topic_idx ON projections.webhook_attempts (topic, attempted_at, attempt_id);
CREATE INDEX webhook_attempts_endpoint_idx ON projections.webhook_attempts (endpoint_id, attempted_at, attempt_id);
CREATE INDEX webhook_attempts_event_idx ON projections.webhook_attempts (event_id, attempted_at, attempt_id);
CREATE INDEX webhook_attempts_tenant_failed_idx
ON projections.webhook_attempts (tenant, attempted_at, attempt_id) WHERE status = 'failed';
CREATE INDEX webhook_attempts_failed_idx ON projections.webhook_attempts (attempted_at, attempt_id) WHERE status = 'failed';

CREATE TABLE projections.webhook_attempts_default PARTITION OF projections.webhook_attempts DEFAULT;

CREATE TABLE projections.partition_settings (
    table_name text PRIMARY KEY,
    partition_interval interval NOT NULL DEFAULT '1 day',
    ahead integer NOT NULL DEFAULT 7,
    retention interval,
    archive_first boolean NOT NULL DEFAULT FALSE,
    maintained_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    CONSTRAINT table_is_partitioned_by_time CHECK (table_name IN ('events', 'matches', 'webhook_events', 'webhook_attempts')),
    CONSTRAINT interval_is_1_minute_to_366_days_in_seconds CHECK (
        partition_interval >= '1 minute' AND partition_interval <= '366 days'
        AND date_trunc('second', partition_interval) = partition_interval
    ),
    CONSTRAINT interval_has_no_months CHECK (
        extract(YEAR FROM partition_interval) = 0 AND extract(MONTH FROM partition_interval) = 0
    ),
    CONSTRAINT ahead_is_1_to_1000 CHECK (ahead BETWEEN 1 AND 1000),
    CONSTRAINT retention_is_at_least_1_minute CHECK (retention >= '1 minute'),
    CONSTRAINT only_events_are_archived CHECK (table_name = 'events' OR NOT archive_first)
);
INSERT INTO projections.partition_settings (table_name, retention) VALUES
('events', NULL), ('matches', '7 days'), ('webhook_events', '30 days'), ('webhook_attempts', '30 days');

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

CREATE TABLE projections.webhook_endpoints (
    endpoint_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    url text NOT NULL,
    description text NOT NULL DEFAULT '',
    topics text[] NOT NULL DEFAULT '{*}',
    filter json,
    headers json NOT NULL DEFAULT '{}',
    state text NOT NULL DEFAULT 'active',
    reason text,
    policy jsonb NOT NULL,
    max_in_flight integer NOT NULL DEFAULT 10,
    rate_limit double precision,
    ordering text NOT NULL DEFAULT 'none',
    on_dead text NOT NULL DEFAULT 'skip',
    when_disabled text NOT NULL DEFAULT 'keep',
    gzip boolean NOT NULL DEFAULT FALSE,
    version integer NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT tenant_has_1_to_200_characters CHECK (char_length(tenant) BETWEEN 1 AND 200),
    CONSTRAINT url_has_1_to_2048_characters CHECK (char_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT state_is_known CHECK (state IN ('active', 'paused', 'disabled')),
    CONSTRAINT max_in_flight_is_1_to_1000 CHECK (max_in_flight BETWEEN 1 AND 1000),
    CONSTRAINT rate_limit_is_positive CHECK (rate_limit BETWEEN 0.000001 AND 100000),
    CONSTRAINT ordering_is_known CHECK (ordering IN ('none', 'key', 'endpoint')),
    CONSTRAINT on_dead_is_known CHECK (on_dead IN ('skip', 'block')),
    CONSTRAINT when_disabled_is_known CHECK (when_disabled IN ('keep', 'discard'))
);
CREATE INDEX webhook_endpoints_tenant_idx ON projections.webhook_endpoints (tenant, endpoint_id);

CREATE TABLE projections.webhook_circuits (
    endpoint_id text COLLATE "C" PRIMARY KEY REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    blocked_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    opened integer NOT NULL DEFAULT 0,
    tokens double precision NOT NULL DEFAULT 0,
    refilled_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    dead_told_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z'
) WITH (fillfactor = 50);

CREATE TABLE projections.webhook_secrets (
    secret_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    secret text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz
);
CREATE INDEX webhook_secrets_endpoint_idx ON projections.webhook_secrets (endpoint_id, secret_id);

CREATE TABLE projections.webhook_deliveries (
    delivery_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    event_id text COLLATE "C" NOT NULL,
    event_time timestamptz NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    topic text NOT NULL,
    order_key text COLLATE "C",
    state text NOT NULL,
    attempts integer NOT NULL DEFAULT 0,
    manual boolean NOT NULL DEFAULT FALSE,
    next_at timestamptz NOT NULL,
    lease_until timestamptz,
    lease_token bigint,
    last_code text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    data text,
    UNIQUE (endpoint_id, event_id),
    CONSTRAINT state_is_known CHECK (state IN ('waiting', 'pending', 'leased', 'done', 'dead', 'discarded'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
CREATE INDEX webhook_deliveries_due_idx ON projections.webhook_deliveries (endpoint_id, next_at, delivery_id)
WHERE state = 'pending';
CREATE INDEX webhook_deliveries_next_idx ON projections.webhook_deliveries (next_at, endpoint_id)
WHERE state = 'pending';
CREATE INDEX webhook_deliveries_leased_idx ON projections.webhook_deliveries (endpoint_id, lease_until)
WHERE state = 'leased';
CREATE INDEX webhook_deliveries_order_idx ON projections.webhook_deliveries (endpoint_id, order_key, delivery_id)
WHERE order_key IS NOT NULL AND state IN ('waiting', 'pending', 'leased', 'dead');
CREATE INDEX webhook_deliveries_dead_idx ON projections.webhook_deliveries (tenant, delivery_id)
WHERE state = 'dead';
CREATE INDEX webhook_deliveries_held_idx ON projections.webhook_deliveries (endpoint_id, state, delivery_id)
WHERE state IN ('waiting', 'dead');
CREATE INDEX webhook_deliveries_time_idx ON projections.webhook_deliveries (event_time, delivery_id);
CREATE SEQUENCE projections.webhook_lease_tokens;

CREATE TABLE projections.webhook_schedules (
    schedule_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    topic text NOT NULL,
    data text NOT NULL,
    endpoint_id text COLLATE "C" REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    missed text NOT NULL DEFAULT 'one',
    paused boolean NOT NULL DEFAULT FALSE,
    next_at timestamptz,
    last_at timestamptz,
    error text,
    held_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, name),
    CONSTRAINT missed_is_known CHECK (missed IN ('skip', 'one', 'all'))
);
CREATE INDEX webhook_schedules_due_idx ON projections.webhook_schedules (next_at) WHERE NOT paused;
CREATE INDEX webhook_schedules_endpoint_idx ON projections.webhook_schedules (endpoint_id) WHERE endpoint_id IS NOT NULL;

CREATE TABLE projections.webhook_duties (
    duty text PRIMARY KEY,
    owner text NOT NULL,
    lease_until timestamptz NOT NULL
);

CREATE TABLE projections.webhook_forgotten (
    the_only_row boolean PRIMARY KEY DEFAULT TRUE CHECK (the_only_row),
    before timestamptz NOT NULL
);
INSERT INTO projections.webhook_forgotten (before) VALUES ('1970-01-01T00:00:00Z');
