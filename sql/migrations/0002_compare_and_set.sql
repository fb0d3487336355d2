-- Progress is stored by compare and set.
ALTER TABLE projections.projection_ranges ADD COLUMN commits bigint NOT NULL DEFAULT 0;
-- Which entity types there are is asked all the time: of sources, for events have many partitions.
CREATE INDEX sources_entity_type_idx ON projections.sources (entity_type);
-- A worker counts its heartbeats.
ALTER TABLE projections.workers ADD COLUMN beats bigint NOT NULL DEFAULT 0;
-- Where a handler failed, for whoever decides about a parked source.
ALTER TABLE projections.parked_sources ADD COLUMN traceback text;
-- Tokens of attempts are random.
DROP SEQUENCE projections.webhook_lease_tokens;
-- A rebuild is not swapped in where the database went back in time since it began.
ALTER TABLE projections.rebuilds ADD COLUMN timeline integer, ADD COLUMN beats bigint NOT NULL DEFAULT 0;
-- A heartbeat asks whether somebody has decided, however many sources wait.
CREATE INDEX parked_sources_decided_idx ON projections.parked_sources (projection_id) WHERE decision <> 'waiting';
-- What matches for a handler that no process has just now is kept for it: it has ranges of its own.
CREATE TABLE projections.group_handlers (
    handler_id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    subscription_id bigint NOT NULL REFERENCES projections.subscriptions ON DELETE CASCADE,
    name text NOT NULL,
    UNIQUE (subscription_id, name)
);
CREATE INDEX group_handlers_group_id_idx ON projections.group_handlers (group_id);
ALTER TABLE projections.group_ranges
ADD COLUMN handler_id integer REFERENCES projections.group_handlers ON DELETE CASCADE,
DROP CONSTRAINT group_ranges_pkey;
CREATE UNIQUE INDEX group_ranges_idx ON projections.group_ranges (group_id, min_slice, coalesce(handler_id, 0));
-- Functions whose arguments or result changed: they are made again as they are now.
DROP FUNCTION IF EXISTS projections.poll_writers_v1(bigint, text[], timestamptz[]);
DROP FUNCTION IF EXISTS projections.predecessors_v1(text[], bigint[]);
DROP FUNCTION IF EXISTS projections.slice_lag_v1(integer);
DROP FUNCTION IF EXISTS projections.read_events_by_slices_v1(
    text, integer, integer, timestamptz, integer, text, bigint, timestamptz, integer
);
DROP FUNCTION IF EXISTS projections.load_events_v1(text[], bigint[], timestamptz[]);
DROP FUNCTION IF EXISTS projections.read_source_v1(text, bigint, bigint, boolean, integer);
DROP FUNCTION IF EXISTS projections.read_next_v1(text, integer, integer, bigint, bigint, integer, bigint[]);
DROP FUNCTION IF EXISTS projections.claim_deliveries_v1(integer, text, interval);
DROP FUNCTION IF EXISTS projections.fan_out_v1(
    text[], timestamptz[], text[], text[], text[], timestamptz[], boolean[], text[], text[], integer[], text[]
);
DROP FUNCTION IF EXISTS projections.claim_deliveries_v1(integer, text, interval, bigint);
DROP FUNCTION IF EXISTS projections.claim_range_v1(integer, integer, text);
DROP FUNCTION IF EXISTS projections.release_range_v1(integer, integer, bigint, timestamptz, bigint);
DROP FUNCTION IF EXISTS projections.save_horizons_v1(integer, integer[], bigint[], timestamptz[], bigint[]);
DROP FUNCTION IF EXISTS projections.save_offsets_v1(
    integer, integer, bigint, text, timestamptz, bigint, text[], smallint[], bigint[], timestamptz[], bigint
);
DROP FUNCTION IF EXISTS projections.heartbeat_v1(text, text, integer, interval, integer[], integer[], boolean);
DROP FUNCTION IF EXISTS projections.poll_group_v1(text, text, interval);
DROP FUNCTION IF EXISTS projections.move_cursor_v1(text, integer, bigint, bigint);
DROP FUNCTION IF EXISTS projections.release_group_range_v1(text, integer, bigint);
DROP FUNCTION IF EXISTS projections.fail_batch_v1(text, text, integer, text, interval, text, integer, bigint);
DROP FUNCTION IF EXISTS projections.take_retries_v1(text, text[], interval, integer);
DROP FUNCTION IF EXISTS projections.poll_group_v1(text, text, interval, boolean);
DROP FUNCTION IF EXISTS projections.move_cursor_v1(text, integer, bigint, bigint, text, bigint, timestamptz);
DROP FUNCTION IF EXISTS projections.check_group_range_v1(text, integer, bigint, text, bigint, bigint, timestamptz);
DROP FUNCTION IF EXISTS projections.release_group_range_v1(text, integer, bigint, text);
DROP FUNCTION IF EXISTS projections.fail_batch_v1(
    text, text, integer, text, interval, text, integer, bigint, text, bigint, bigint, timestamptz
);
DROP FUNCTION IF EXISTS projections.park_source_v1(integer, text, integer, bigint, text, text, integer);
DROP FUNCTION IF EXISTS projections.group_lag_v1(text);
DROP FUNCTION IF EXISTS projections.lock_rebuild_part_v1(integer, integer);
DROP FUNCTION IF EXISTS projections.swap_rebuild_v1(integer);
DROP FUNCTION IF EXISTS projections.due_schedules_v1(interval, integer);
DROP FUNCTION IF EXISTS projections.take_schedule_v1(text);
DROP FUNCTION IF EXISTS projections.advance_schedule_v1(text, timestamptz, timestamptz, timestamptz, text, interval);
DROP FUNCTION IF EXISTS projections.webhook_totals_v1();
DROP FUNCTION IF EXISTS projections.change_endpoint_v1(text, text, jsonb);
DROP FUNCTION IF EXISTS projections.create_endpoint_v1(text, text, jsonb, text, integer);
DROP FUNCTION IF EXISTS projections.set_endpoint_state_v1(text, text, text, text, text[]);
DROP FUNCTION IF EXISTS projections.rotate_secret_v1(text, text, text, interval);
DROP FUNCTION IF EXISTS projections.remove_endpoint_v1(text, text);
DROP FUNCTION IF EXISTS projections.writers_in_flight_v1();
-- Whoever reads events names one entity type: as a pattern it would be refused.
ALTER TABLE projections.sources ADD CONSTRAINT entity_type_is_no_pattern CHECK (strpos(entity_type, '*') = 0);
-- Tenants with schedules that are due have their turns.
CREATE INDEX webhook_schedules_turn_idx
ON projections.webhook_schedules (hashtextextended(tenant, 0), next_at) WHERE NOT paused;
-- Which ticks of schedules were missed is judged by the times in which nobody could send them.
CREATE TABLE projections.webhook_standstills (
    ended_at timestamptz PRIMARY KEY DEFAULT 'infinity',
    began_at timestamptz NOT NULL,
    skipped bigint NOT NULL DEFAULT 0
);
-- Deliveries are claimed in turn by tenant.
DROP INDEX projections.webhook_deliveries_due_idx;
CREATE INDEX webhook_deliveries_due_idx ON projections.webhook_deliveries (tenant, endpoint_id, next_at, delivery_id)
WHERE state = 'pending';
-- What a condition has not answered keeps its place.
ALTER TABLE projections.conditions
ADD COLUMN failures integer NOT NULL DEFAULT 0,
ADD COLUMN unasked_from bigint,
ADD COLUMN unasked_skip integer NOT NULL DEFAULT 0,
ADD COLUMN checked integer NOT NULL DEFAULT 0;
UPDATE projections.conditions SET unasked_from = 1 WHERE quarantined_at IS NOT NULL;
CREATE TABLE projections.unasked (
    page_id bigint PRIMARY KEY,
    entity_type text COLLATE "C" NOT NULL,
    condition_ids integer[] NOT NULL,
    topics text[] NOT NULL,
    source_ids text[] COLLATE "C" NOT NULL,
    seq_nrs bigint[] NOT NULL,
    db_timestamps timestamptz[] NOT NULL,
    as_of timestamptz[],
    since timestamptz NOT NULL,
    until timestamptz NOT NULL
);
CREATE TABLE projections.unanswered (
    unanswered_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    condition_id integer NOT NULL REFERENCES projections.conditions ON DELETE CASCADE,
    entity_type text COLLATE "C" NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL,
    topic text NOT NULL,
    as_of timestamptz NOT NULL,
    error text,
    due boolean NOT NULL,
    set_apart_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (condition_id, source_id, seq_nr)
);
CREATE INDEX unanswered_due_idx ON projections.unanswered (condition_id, unanswered_id) WHERE due;
CREATE INDEX unanswered_failed_idx ON projections.unanswered (condition_id) WHERE NOT due;
CREATE INDEX unanswered_db_timestamp_idx ON projections.unanswered (condition_id, db_timestamp);
DROP FUNCTION IF EXISTS projections.ask_condition_v1(integer, projections.matchable_events[], text[], bigint[], boolean);
DROP FUNCTION IF EXISTS projections.interests_v1(text, text[]);
DROP FUNCTION IF EXISTS projections.asked_events_v1(text[], bigint[], timestamptz[], text[], integer[], text[], text[]);
DROP FUNCTION IF EXISTS projections.match_events_v1(
    text, text[], bigint[], timestamptz[], smallint[], text[], integer[], text[], integer[], text[], bigint[]
);
DROP FUNCTION IF EXISTS projections.match_log_v1(
    text, text[], bigint[], timestamptz[], smallint[], text[], integer[], text[], integer[], text[]
);
DROP FUNCTION IF EXISTS projections.match_due_v1(integer);
-- What endpoints may ask for.
CREATE TABLE projections.webhook_limits (
    name text PRIMARY KEY,
    -- NULL: no bound but that of the library. Times are in seconds.
    least numeric,
    most numeric,
    CONSTRAINT name_is_known CHECK (
        name IN ('max_in_flight', 'timeout', 'pause', 'attempts', 'breaker_failures', 'breaker_pause')
    ),
    CONSTRAINT bounds_are_positive CHECK (least >= 0 AND most > 0),
    CONSTRAINT bounds_are_within_reach CHECK (least <= 1000000000 AND most <= 1000000000),
    CONSTRAINT counts_are_whole CHECK (
        name NOT IN ('max_in_flight', 'attempts', 'breaker_failures') OR (least = trunc(least) AND most = trunc(most))
    ),
    CONSTRAINT least_is_not_above_most CHECK (least <= most)
);
INSERT INTO projections.webhook_limits (name, least, most) VALUES
('max_in_flight', 1, 100), ('timeout', 1, 30), ('pause', 1, NULL), ('attempts', NULL, 25), ('breaker_failures', NULL, 100),
('breaker_pause', 5, NULL);
-- URLs may have to show that they want webhooks.
ALTER TABLE projections.webhook_endpoints ADD COLUMN verified_url text;
CREATE INDEX webhook_endpoints_active_idx ON projections.webhook_endpoints (tenant) WHERE state = 'active';
-- Answers to requests with an idempotency-key.
CREATE TABLE projections.webhook_answers (
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    answer text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX webhook_answers_expires_at_idx ON projections.webhook_answers (expires_at);
-- A page of the delivery log says where it ended.
DROP FUNCTION IF EXISTS projections.list_logged_events_v1(
    text[], text[], text[], text[], timestamptz, timestamptz, timestamptz, timestamptz, boolean, timestamptz, text, boolean, integer
);
DROP FUNCTION IF EXISTS projections.list_logged_attempts_v1(
    text[], text[], text[], text[], timestamptz, timestamptz, timestamptz, timestamptz, boolean, timestamptz, text, boolean, integer,
    text[], text, text[]
);
-- Schedules are changed by who has seen them as they are.
ALTER TABLE projections.webhook_schedules ADD COLUMN version integer NOT NULL DEFAULT 1;
DROP FUNCTION IF EXISTS projections.create_schedule_v1(
    text, text, text, text, text, text, text, text, text, timestamptz, integer
);
DROP FUNCTION IF EXISTS projections.change_schedule_v1(text, text, jsonb, timestamptz);
DROP FUNCTION IF EXISTS projections.remove_schedule_v1(text, text);
DROP FUNCTION IF EXISTS projections.endpoint_stats_v1(text, interval, integer, integer);
-- A range that is one handler's own goes to who reads its slices, where that one has the handler.
ALTER TABLE projections.group_readers ADD COLUMN handlers integer[] NOT NULL DEFAULT '{}';
