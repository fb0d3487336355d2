-- The names of private functions begin with an underscore. Those of before are dropped, for all functions are made again after
-- the migrations; one on which something depends, such as a trigger of a captured table, is renamed.
DO $$
DECLARE
    _one record;
BEGIN
    FOR _one IN
        SELECT p.oid::regprocedure AS function, p.proname AS name FROM pg_catalog.pg_proc AS p
        WHERE p.pronamespace = 'projections'::regnamespace AND p.proname ~ '_v[0-9]+$' AND p.proname NOT IN (
            'append_event_v1', 'append_events_v1', 'capture_table_v1', 'check_group_range_v1', 'check_place_v1',
            'checked_json_v1', 'create_group_v1', 'drop_batches_v1', 'endpoint_stats_v1', 'fail_batch_v1',
            'find_event_v1', 'finish_retry_v1', 'generation_v1', 'group_lag_v1', 'heartbeat_v1', 'join_handler_v1',
            'keep_subscriptions_v1', 'latest_seq_nr_v1', 'leave_v1', 'maintain_v1', 'move_cursor_v1',
            'notify_appended_v1', 'partition_holders_v1', 'poll_group_v1', 'publish_v1', 'read_events_by_slices_v1',
            'read_next_v1', 'read_offsets_v1', 'read_source_v1', 'register_handler_v1', 'register_projection_v1',
            'release_group_range_v1', 'release_range_v1', 'release_table_v1', 'remove_group_v1', 'retry_batches_v1',
            'rewind_group_v1', 'save_horizons_v1', 'save_offsets_v1', 'settled_matches_v1', 'slice_lag_v1',
            'slice_of_v1', 'subscribe_v1', 'take_retries_v1', 'timeline_v1', 'unsubscribe_v1', 'uuid7_v1',
            'writers_in_flight_v1'
        )
    LOOP
        BEGIN
            EXECUTE format('DROP FUNCTION %s', _one.function);
        EXCEPTION
            WHEN dependent_objects_still_exist THEN
                EXECUTE format('ALTER FUNCTION %s RENAME TO %I', _one.function, '_' || _one.name);
        END;
    END LOOP;
END;
$$;
-- Public functions whose arguments or result changed.
DROP FUNCTION IF EXISTS projections.append_events_v1;
DROP FUNCTION IF EXISTS projections.create_group_v1;
DROP FUNCTION IF EXISTS projections.endpoint_stats_v1;
DROP FUNCTION IF EXISTS projections.find_event_v1;
DROP FUNCTION IF EXISTS projections.group_lag_v1;
DROP FUNCTION IF EXISTS projections.heartbeat_v1;
DROP FUNCTION IF EXISTS projections.read_events_by_slices_v1;
DROP FUNCTION IF EXISTS projections.read_source_v1;
DROP FUNCTION IF EXISTS projections.register_projection_v1;
DROP FUNCTION IF EXISTS projections.save_offsets_v1;
DROP FUNCTION IF EXISTS projections.slice_lag_v1;
DROP FUNCTION IF EXISTS projections.subscribe_v1;
-- Ranges of groups are assigned as those of projections are: whoever reads one keeps it.
ALTER TABLE projections.group_ranges ADD COLUMN assigned_to text;
UPDATE projections.group_ranges SET assigned_to = owner;
-- Whoever holds slices is a worker, with one lease for all of them.
ALTER TABLE projections.workers
ADD COLUMN group_id integer REFERENCES projections.subscription_groups ON DELETE CASCADE,
ADD COLUMN handlers integer[] NOT NULL DEFAULT '{}';
INSERT INTO projections.workers (owner, host, pid, projection_ids, joined_at, lease_until, group_id, handlers)
SELECT
    r.owner,
    '' AS host,
    0 AS pid,
    '{}' AS projection_ids,
    r.joined_at,
    r.lease_until,
    r.group_id,
    r.handlers
FROM projections.group_readers AS r
ON CONFLICT (owner) DO NOTHING;
DROP TABLE projections.group_readers;
-- What one process at a time does for all is done in turns; nobody has it for longer.
CREATE TABLE projections.turns (
    chore text PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
INSERT INTO projections.turns (chore, taken_at)
SELECT
    'maintenance' AS chore,
    max(s.maintained_at) AS taken_at
FROM projections.partition_settings AS s HAVING count(*) > 0;
ALTER TABLE projections.partition_settings DROP COLUMN maintained_at;
DROP TABLE projections.webhook_duties;
-- Topics have one grammar: * stands for characters of one segment, ** for segments.
ALTER TABLE projections.subscriptions ADD COLUMN likes text[], ADD COLUMN regexes text[];
-- What a pattern matched it still matches, found by the LIKE of before. Where * stood for dots too, it is written in the new grammar.
UPDATE projections.subscriptions
SET likes = patterns, identity = identity || jsonb_build_object('before', identity -> 'topics') WHERE patterns IS NOT NULL;
DO $$
DECLARE
    -- Stands for a star of today among those of before.
    _star CONSTANT text := chr(1);
    _wide CONSTANT text[] := ARRAY[
        _star, _star || '.' || _star, _star || '.' || _star || _star || '.' || _star
    ];
    _one record;
BEGIN
    FOR _one IN
        WITH RECURSIVE given AS (
            SELECT
                s.subscription_id, regexp_replace(t.topic, '[*]+', '*', 'g') AS topic,
                regexp_replace(regexp_replace(t.topic, '[*]+', '*', 'g'), '(?<![^.])[*](?![^.])', '', 'g') AS parted
            FROM projections.subscriptions AS s CROSS JOIN LATERAL jsonb_array_elements_text(s.identity -> 'topics') AS t (topic)
            WHERE s.patterns IS NOT NULL
        ), written AS (
            -- Each star within a segment makes two or three of a pattern: of too many, none is made.
            SELECT
                g.subscription_id, CASE WHEN g.parted ~ '([*].*){5}' THEN '*' ELSE g.topic END AS topic, g.parted ~ '([*].*){5}' AS widened
            FROM given AS g
            UNION ALL
            SELECT w.subscription_id, left(w.topic, a.place - 1) || r.stars || substr(w.topic, a.place + 1), w.widened
            FROM written AS w
            CROSS JOIN LATERAL (SELECT strpos(w.topic, '*') AS place) AS a
            CROSS JOIN LATERAL (
                SELECT
                    a.place = 1 OR substr(w.topic, a.place - 1, 1) = '.' AS first,
                    a.place = char_length(w.topic) OR substr(w.topic, a.place + 1, 1) = '.' AS last
            ) AS b
            CROSS JOIN LATERAL unnest(CASE
                WHEN b.first AND b.last THEN ARRAY[_star || _star]
                WHEN b.first THEN ARRAY[_star, _star || _star || '.' || _star]
                WHEN b.last THEN ARRAY[_star, _star || '.' || _star || _star]
                ELSE _wide
            END) AS r (stars)
            WHERE a.place > 0
        )
        SELECT
            w.subscription_id, bool_or(w.widened) AS widened,
            array_agg(DISTINCT translate(w.topic, _star, '*') ORDER BY translate(w.topic, _star, '*')) AS patterns
        FROM written AS w WHERE strpos(w.topic, '*') = 0 GROUP BY w.subscription_id ORDER BY w.subscription_id
    LOOP
        IF _one.widened THEN
            RAISE NOTICE 'subscription % gets every topic now: its topics have too many * within a segment', _one.subscription_id;
            _one.patterns := ARRAY['**'];
        END IF;
        UPDATE projections.subscriptions AS s
        SET patterns = _one.patterns, likes = CASE WHEN _one.widened THEN ARRAY['%'] ELSE s.likes END
        WHERE s.subscription_id = _one.subscription_id;
        BEGIN
            UPDATE projections.subscriptions AS s
            SET identity = (s.identity - 'before') || jsonb_build_object('topics', to_jsonb(_one.patterns))
            WHERE s.subscription_id = _one.subscription_id;
        EXCEPTION
            -- Another one asks for the same by now: nobody asks for this one any more.
            WHEN exclusion_violation THEN NULL;
        END;
    END LOOP;
END;
$$;
ALTER TABLE projections.webhook_endpoints ALTER COLUMN topics SET DEFAULT '{**}';
UPDATE projections.webhook_endpoints AS e
SET
    topics = (
        SELECT array_agg(regexp_replace(t.topic, '(^|[.])[*]$', '\1**') ORDER BY t.place)
        FROM unnest(e.topics) WITH ORDINALITY AS t (topic, place)
    )
WHERE e.topics::text LIKE '%*%';
-- What people decide not to try again is dropped, wherever it failed.
ALTER TABLE projections.webhook_deliveries DROP CONSTRAINT state_is_known;
UPDATE projections.webhook_deliveries SET state = 'dropped' WHERE state = 'discarded';
ALTER TABLE projections.webhook_deliveries
ADD COLUMN expires_at timestamptz,
ADD COLUMN erased boolean NOT NULL DEFAULT FALSE,
ADD CONSTRAINT state_is_known CHECK (state IN ('waiting', 'pending', 'leased', 'done', 'dead', 'dropped', 'expired', 'erased'));
CREATE INDEX webhook_deliveries_expiry_idx ON projections.webhook_deliveries (expires_at)
WHERE expires_at IS NOT NULL AND state IN ('waiting', 'pending', 'dead');
ALTER TABLE projections.webhook_circuits ADD COLUMN expired bigint NOT NULL DEFAULT 0;
ALTER TABLE projections.webhook_events
ALTER COLUMN data DROP NOT NULL,
ADD COLUMN order_key text COLLATE "C",
ADD COLUMN erased_at timestamptz;
-- Filters without operators mean containment, as jsonb has it. Those of before looked into lists, too: $any does.
CREATE FUNCTION projections.filter_written(p_condition jsonb)
RETURNS jsonb
LANGUAGE plpgsql
AS $$
DECLARE
    _fields jsonb;
    _operators jsonb;
BEGIN
    IF jsonb_typeof(p_condition) = 'array' THEN
        RETURN (SELECT coalesce(jsonb_agg(projections.filter_written(i.item) ORDER BY i.place), '[]')
                FROM jsonb_array_elements(p_condition) WITH ORDINALITY AS i (item, place));
    ELSIF jsonb_typeof(p_condition) <> 'object' THEN
        RETURN jsonb_build_object('$any', p_condition);
    END IF;
    SELECT
        jsonb_object_agg(f.name, projections.filter_written(f.value)) FILTER (WHERE f.name NOT LIKE '$%'),
        jsonb_object_agg(f.name, CASE
            WHEN f.name IN ('$or', '$and', '$not') THEN projections.filter_written(f.value) ELSE f.value
        END) FILTER (WHERE f.name LIKE '$%')
    INTO _fields, _operators FROM jsonb_each(p_condition) AS f (name, value);
    RETURN CASE WHEN _fields IS NOT NULL OR _operators IS NULL THEN jsonb_build_object('$any', coalesce(_fields, '{}')) ELSE '{}' END
        || coalesce(_operators, '{}');
END;
$$;
CREATE FUNCTION projections.event_filter_written(p_filter jsonb)
RETURNS jsonb
LANGUAGE sql
AS $$
    SELECT coalesce(jsonb_object_agg(f.name, CASE
        WHEN f.name IN ('data', 'metadata') THEN projections.filter_written(f.value)
        WHEN f.name = '$not' THEN projections.event_filter_written(f.value)
        WHEN f.name IN ('$or', '$and') THEN (
            SELECT jsonb_agg(projections.event_filter_written(i.item) ORDER BY i.place)
            FROM jsonb_array_elements(f.value) WITH ORDINALITY AS i (item, place)
        )
        ELSE f.value
    END), '{}')
    FROM jsonb_each(p_filter) AS f (name, value)
$$;
UPDATE projections.webhook_endpoints SET filter = projections.event_filter_written(filter::jsonb)::json WHERE filter IS NOT NULL;
DROP FUNCTION projections.event_filter_written(jsonb);
DROP FUNCTION projections.filter_written(jsonb);
-- Whoever waits for events to be handled says so here.
ALTER TABLE projections.projections ADD COLUMN waited_until timestamptz;
-- What a projection has reacted to.
CREATE TABLE projections.reactions (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    source_id text COLLATE "C" NOT NULL,
    seq_nr bigint NOT NULL,
    PRIMARY KEY (projection_id, source_id)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05);
-- Projections that are handled in the transactions that append.
ALTER TABLE projections.projections ADD COLUMN mode text NOT NULL DEFAULT 'live' CONSTRAINT known_mode CHECK (mode IN ('live', 'inline'));
-- A projection reads one entity type, several or all of them, and a rebuild those of the version that it builds.
ALTER TABLE projections.projections ADD COLUMN entity_types text[] COLLATE "C";
UPDATE projections.projections SET entity_types = ARRAY[entity_type];
ALTER TABLE projections.projections
DROP COLUMN entity_type,
ADD CONSTRAINT entity_types_are_some CHECK (cardinality(entity_types) > 0);
ALTER TABLE projections.rebuilds ADD COLUMN entity_types text[] COLLATE "C";
UPDATE projections.rebuilds AS b
SET entity_types = p.entity_types FROM projections.projections AS p WHERE b.projection_id = p.projection_id;
-- Subscriptions may start in the past.
ALTER TABLE projections.subscriptions ADD COLUMN starts_at timestamptz;
CREATE INDEX subscriptions_starts_at_idx ON projections.subscriptions (subscription_id) WHERE starts_at IS NOT NULL;
CREATE TABLE projections.subscription_history (
    subscription_id bigint PRIMARY KEY REFERENCES projections.subscriptions ON DELETE CASCADE,
    db_timestamp timestamptz NOT NULL,
    slice smallint NOT NULL DEFAULT 0,
    source_id text COLLATE "C" NOT NULL DEFAULT '',
    seq_nr bigint NOT NULL DEFAULT 0,
    events bigint NOT NULL DEFAULT 0,
    first_event timestamptz,
    began_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
ALTER TABLE projections.unanswered
ADD COLUMN subscription_id bigint REFERENCES projections.subscriptions ON DELETE CASCADE,
DROP CONSTRAINT unanswered_condition_id_source_id_seq_nr_key;
CREATE UNIQUE INDEX unanswered_idx ON projections.unanswered (condition_id, source_id, seq_nr, coalesce(subscription_id, 0));
CREATE INDEX unanswered_subscription_id_idx ON projections.unanswered (subscription_id) WHERE subscription_id IS NOT NULL;
-- One projection matches the events of all entity types.
ALTER TABLE projections.unasked ADD COLUMN entity_types text[] COLLATE "C";
UPDATE projections.unasked SET entity_types = array_fill(entity_type, ARRAY[cardinality(condition_ids)]);
ALTER TABLE projections.unasked DROP COLUMN entity_type, ALTER COLUMN entity_types SET NOT NULL;
DO $$
DECLARE
    _old CONSTANT integer[] := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p WHERE p.name = 'matching/' || p.entity_types[1]
    );
    -- Of a type that nobody has matched yet, everything since the first subscription is left.
    _never timestamptz;
    _from timestamptz;
    _new integer;
BEGIN
    IF EXISTS (SELECT FROM projections.projections AS p WHERE p.name = 'matching') THEN
        RAISE EXCEPTION 'the name of projection ''matching'' is that of the matching of subscriptions from now on'
        USING ERRCODE = 'PJ030', HINT = 'UPDATE projections.projections SET name = ... WHERE name = ''matching'', as in its code.';
    ELSIF cardinality(_old) = 0 THEN
        RETURN;
    END IF;
    -- Waits for batches in flight. Others find no range any more.
    PERFORM FROM projections.projection_ranges AS r WHERE r.projection_id = ANY (_old)
    ORDER BY r.projection_id, r.min_slice FOR UPDATE;
    IF EXISTS (
        SELECT FROM projections.sources AS s WHERE NOT EXISTS (
            SELECT FROM projections.projections AS p WHERE p.projection_id = ANY (_old) AND p.entity_types[1] = s.entity_type
        )
    ) THEN
        _never := (SELECT min(s.since) FROM projections.subscriptions AS s);
    END IF;
    -- It reads nothing that is older.
    SELECT least(_never, min(r.horizon), (
        SELECT min(i.from_timestamp) FROM projections.imports AS i WHERE i.import_id > min(r.import_id)
    )) INTO _from FROM projections.projection_ranges AS r WHERE r.projection_id = ANY (_old);
    INSERT INTO projections.projections (name, paused, evicted_before, created_at)
    SELECT 'matching', bool_or(p.paused), least(_from, min(p.evicted_before)), min(p.created_at)
    FROM projections.projections AS p WHERE p.projection_id = ANY (_old)
    RETURNING projection_id INTO _new;
    IF EXISTS (SELECT FROM projections.projections AS p WHERE p.projection_id = _new AND p.paused) THEN
        RAISE NOTICE 'matching is paused, of all entity types, for that of one was: projections resume matching';
    END IF;
    -- As that of most ranges, each from where the first of the others stands.
    INSERT INTO projections.projection_ranges (
        projection_id, min_slice, max_slice, horizon, import_id, handled_until, handled_at, handled
    )
    SELECT
        _new, w.min_slice, w.max_slice, least(_never, min(r.horizon)), min(r.import_id), max(r.handled_until), max(r.handled_at),
        coalesce(sum(r.handled) FILTER (WHERE r.min_slice BETWEEN w.min_slice AND w.max_slice), 0)
    FROM projections.projection_ranges AS w
    INNER JOIN projections.projection_ranges AS r
        ON r.projection_id = ANY (_old) AND w.min_slice <= r.max_slice AND r.min_slice <= w.max_slice
    WHERE w.projection_id = (
        SELECT m.projection_id FROM projections.projection_ranges AS m WHERE m.projection_id = ANY (_old)
        GROUP BY m.projection_id ORDER BY count(*) DESC, m.projection_id LIMIT 1
    )
    GROUP BY w.min_slice, w.max_slice;
    -- What a type had passed is handled, also where its offset was evicted, or never there because it began later.
    INSERT INTO projections.source_offsets (projection_id, source_id, slice, seq_nr, db_timestamp)
    SELECT _new, h.source_id, h.slice, max(h.seq_nr), max(h.db_timestamp)
    FROM (
        SELECT o.source_id, o.slice, o.seq_nr, o.db_timestamp FROM projections.source_offsets AS o WHERE o.projection_id = ANY (_old)
        UNION ALL
        SELECT e.source_id, e.slice, e.seq_nr, e.db_timestamp
        FROM (
            SELECT
                r.projection_id, p.entity_types[1] AS entity_type, r.min_slice, r.max_slice, p.evicted_before,
                least(r.horizon, (
                    SELECT min(i.from_timestamp) FROM projections.imports AS i
                    WHERE i.entity_type = p.entity_types[1] AND i.import_id > r.import_id
                )) AS horizon
            FROM projections.projections AS p INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
            WHERE p.projection_id = ANY (_old)
        ) AS r
        INNER JOIN projections.events AS e
            ON r.entity_type = e.entity_type AND e.slice BETWEEN r.min_slice AND r.max_slice
            AND e.db_timestamp >= _from AND e.db_timestamp < greatest(r.horizon, r.evicted_before)
        WHERE e.db_timestamp < r.horizon OR NOT EXISTS (
            SELECT FROM projections.source_offsets AS o WHERE o.projection_id = r.projection_id AND o.source_id = e.source_id
        )
    ) AS h
    GROUP BY h.source_id, h.slice;
    DELETE FROM projections.source_offsets AS o WHERE o.projection_id = ANY (_old);
    DELETE FROM projections.projections AS p WHERE p.projection_id = ANY (_old);
END;
$$;
-- A group may say from when on its subscriptions get events.
ALTER TABLE projections.subscription_groups ADD COLUMN starts_at timestamptz NOT NULL DEFAULT 'infinity';
-- Read models may be in another database than the journal.
ALTER TABLE projections.projections ADD COLUMN journal text;
ALTER TABLE projections.projections ADD CONSTRAINT inline_reads_here CHECK (journal IS NULL OR mode = 'live');
-- A projection may read several, and has a row for each.
ALTER TABLE projections.projections DROP CONSTRAINT projections_name_key;
CREATE UNIQUE INDEX projections_name_idx ON projections.projections (name, coalesce(journal, 'journal'));
ALTER TABLE projections.projection_ranges ADD COLUMN journal_life text;
ALTER TABLE projections.rebuilds ADD COLUMN journal_life text;
DROP FUNCTION IF EXISTS projections.register_projection_v1(text, text[], integer[], integer);
-- Journals of other systems have names.
CREATE TABLE projections.journals (
    name text PRIMARY KEY,
    kind text NOT NULL,
    mapping text NOT NULL,
    dsn text,
    dsn_variable text,
    attached_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT name_is_plain CHECK (name ~ '^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}$' AND name <> 'journal'),
    CONSTRAINT one_place CHECK (num_nonnulls(dsn, dsn_variable) = 1)
);
-- Journals that are ordered by numbers have no times.
CREATE TABLE projections.journal_watermarks (
    journal text NOT NULL,
    place timestamptz NOT NULL,
    reached_at timestamptz NOT NULL,
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (journal, place)
);
-- Whoever has a table with partitions in time says so by its settings.
ALTER TABLE projections.partition_settings
DROP CONSTRAINT table_is_partitioned_by_time,
ADD CONSTRAINT table_is_partitioned CHECK (pg_get_partkeydef(to_regclass(format('projections.%I', table_name))) IS NOT NULL);
-- What happened to ranges, and the statements of read models in SQL, for people.
CREATE TABLE projections.range_changes (
    projection_id integer NOT NULL,
    change_id bigint GENERATED ALWAYS AS IDENTITY,
    changed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL CHECK (kind IN ('rescaled', 'taken over', 'taken by order')),
    ranges integer NOT NULL,
    ranges_before integer,
    taken_from text,
    taken_by text,
    PRIMARY KEY (projection_id, change_id)
);
CREATE TABLE projections.read_models (
    projection_id integer NOT NULL REFERENCES projections.projections ON DELETE CASCADE,
    version integer NOT NULL,
    name text NOT NULL,
    table_name text NOT NULL,
    statement text NOT NULL,
    PRIMARY KEY (projection_id, version, name)
);
-- Endpoints may ask for a client certificate, or for access tokens.
CREATE TABLE projections.webhook_credentials (
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL,
    facts json NOT NULL,
    secret text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT kind_is_known CHECK (kind IN ('certificate', 'oauth')),
    PRIMARY KEY (endpoint_id, kind)
);
