-- Appends events of any number of sources, inside the caller's transaction; returns one row for each, in order.
--
-- Arrays run in parallel, an element for each event. Of p_versions, p_metadata, p_tags (array literals) and
-- p_event_ids an element, or the whole array, may be NULL. An event whose id is stored already is not appended again:
-- its first result is returned, and is_new is false; that of a message (_message_types_v1) may be of another source.
-- p_expected_source_ids and p_expected_seq_nrs say where sources must stand before.
--
-- It has the rights of the schema's owner: who appends may not write the tables, whose numbers and times are made here.
--
-- Raises PJ001 when a source stands elsewhere, PJ002 when an event_id was used for other content, PJ003 when a source is
-- of another entity type, an event_id is from the future or the arrays do not match. What a column's type or check
-- refuses has PostgreSQL's own code.
CREATE OR REPLACE FUNCTION projections.append_events_v1(
    p_source_ids text[],
    p_entity_types text[],
    p_event_types text[],
    p_payloads text[],
    p_versions smallint[] DEFAULT NULL,
    p_metadata text[] DEFAULT NULL,
    p_tags text[] DEFAULT NULL,
    p_event_ids uuid[] DEFAULT NULL,
    p_expected_source_ids text[] DEFAULT '{}',
    p_expected_seq_nrs bigint[] DEFAULT '{}'
)
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz, event_id uuid, is_new boolean)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
-- Plans are kept, whatever the arrays hold: for short ones they would be made again in each call, which took longer than all else
-- that an append of one event does.
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_nestloop = off
AS $$
#variable_conflict use_column
DECLARE
    _seed CONSTANT uuid := gen_random_uuid();
    _has_ids CONSTANT boolean := cardinality(array_remove(p_event_ids, NULL)) > 0;
    _has_messages CONSTANT boolean := _has_ids AND p_entity_types && projections._message_types_v1();
    _stored_ordinals bigint[];
    _stored_source_ids text[];
    _stored_seq_nrs bigint[];
    _stored_timestamps timestamptz[];
    _source_ids text[];
    _seq_nrs bigint[];
    _timestamps timestamptz[];
    _slices smallint[];
    _counts bigint[];
    _mistyped text;
    _wrong record;
BEGIN
    -- The joins below would leave out without a word what is too much.
    IF coalesce(cardinality(p_source_ids), 0) < greatest(
        cardinality(p_entity_types), cardinality(p_event_types), cardinality(p_payloads), cardinality(p_versions),
        cardinality(p_metadata), cardinality(p_tags), cardinality(p_event_ids)
    ) OR cardinality(p_expected_source_ids) <> cardinality(p_expected_seq_nrs) THEN
        RAISE EXCEPTION 'the arrays of an append differ in their lengths' USING ERRCODE = 'PJ003';
    END IF;

    -- Ids before sources: who waits for an id keeps nobody from a source. What is stored already of a message belongs to the
    -- source that it has there.
    IF _has_messages THEN
        PERFORM projections._take_message_ids_v1(p_entity_types, p_event_ids);
        SELECT array_agg(s.ordinal), array_agg(s.source_id), array_agg(s.seq_nr), array_agg(s.db_timestamp)
        INTO _stored_ordinals, _stored_source_ids, _stored_seq_nrs, _stored_timestamps
        FROM projections._stored_events_v1(
            p_source_ids, p_entity_types, p_event_types, p_versions, p_payloads, p_metadata, p_tags, p_event_ids
        ) AS s;
        FOR _place IN 1..coalesce(cardinality(_stored_ordinals), 0) LOOP
            p_source_ids[_stored_ordinals[_place]] := _stored_source_ids[_place];
        END LOOP;
    END IF;

    -- Before the clock is read: whoever does not see this lock knows that our timestamps are later (docs/decisions).
    LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE;

    -- Locks the sources' rows in one order, reserves their numbers, and reads the clock under the lock. What turns out to be
    -- stored already gives its numbers back: it is rare, and to lock all rows before, only to look, costs as much as this.
    WITH input AS (
        SELECT
            i.source_id, min(i.entity_type) AS entity_type, max(i.entity_type) AS other_entity_type,
            count(*) AS events,
            (SELECT k.slice FROM projections.sources AS k WHERE k.source_id = i.source_id) AS slice
        FROM (
            SELECT n.source_id COLLATE "C" AS source_id, n.entity_type
            FROM unnest(p_source_ids, p_entity_types) AS n (source_id, entity_type)
        ) AS i
        GROUP BY i.source_id
        ORDER BY i.source_id
    ), reserved AS (
        INSERT INTO projections.sources AS s (source_id, entity_type, slice, seq_nr, db_timestamp)
        SELECT
            i.source_id, i.entity_type, coalesce(i.slice, projections.slice_of_v1(i.source_id)), i.events,
            clock_timestamp() + (i.events - 1) * interval '1 microsecond'
        FROM input AS i
        ON CONFLICT (source_id) DO UPDATE SET
            seq_nr = s.seq_nr + excluded.seq_nr,
            db_timestamp = greatest(clock_timestamp(), s.db_timestamp + interval '1 microsecond')
                + (excluded.seq_nr - 1) * interval '1 microsecond'
        RETURNING s.source_id, s.seq_nr, s.db_timestamp, s.slice, s.entity_type
    )
    SELECT
        array_agg(r.source_id), array_agg(r.seq_nr), array_agg(r.db_timestamp), array_agg(r.slice),
        array_agg(i.events), min(r.source_id) FILTER (WHERE r.entity_type <> i.entity_type OR r.entity_type <> i.other_entity_type)
    INTO _source_ids, _seq_nrs, _timestamps, _slices, _counts, _mistyped
    FROM reserved AS r INNER JOIN input AS i ON r.source_id = i.source_id;

    IF _mistyped IS NOT NULL THEN
        SELECT i.entity_type, s.entity_type AS stored INTO _wrong
        FROM unnest(p_source_ids, p_entity_types) AS i (source_id, entity_type)
        INNER JOIN projections.sources AS s ON i.source_id = s.source_id
        WHERE i.source_id = _mistyped AND i.entity_type <> s.entity_type
        LIMIT 1;
        RAISE EXCEPTION 'source % is of entity type %, not %',
            quote_literal(_mistyped), quote_literal(_wrong.stored), quote_literal(_wrong.entity_type)
        USING ERRCODE = 'PJ003', HINT = 'Ids are unique over all entity types: put the type into them.';
    END IF;

    -- With the sources locked: who appends the same event at the same time waits, and finds it.
    IF _has_ids AND NOT (_has_messages AND p_entity_types <@ projections._message_types_v1()) THEN
        SELECT array_agg(s.ordinal), array_agg(s.seq_nr), array_agg(s.db_timestamp)
        INTO _stored_ordinals, _stored_seq_nrs, _stored_timestamps
        FROM projections._stored_events_v1(
            p_source_ids, p_entity_types, p_event_types, p_versions, p_payloads, p_metadata, p_tags, p_event_ids
        ) AS s;
    END IF;
    IF _stored_ordinals IS NOT NULL THEN
        SELECT
            array_agg(r.source_id), array_agg(r.seq_nr), array_agg(r.db_timestamp), array_agg(r.slice), array_agg(r.events)
        INTO _source_ids, _seq_nrs, _timestamps, _slices, _counts
        FROM projections._return_numbers_v1(
            _source_ids, _counts, ARRAY(
                SELECT i.source_id FROM unnest(p_source_ids) WITH ORDINALITY AS i (source_id, ordinal)
                WHERE i.ordinal IN (SELECT unnest(_stored_ordinals))
            ), (SELECT min(o.at) FROM unnest(_stored_timestamps) AS o (at))
        ) AS r;
    END IF;

    IF cardinality(p_expected_source_ids) > 0 THEN
        SELECT x.source_id, x.expected, r.seq_nr - r.events AS found INTO _wrong
        FROM unnest(p_expected_source_ids, p_expected_seq_nrs) AS x (source_id, expected)
        INNER JOIN unnest(_source_ids, _seq_nrs, _counts) AS r (source_id, seq_nr, events) ON x.source_id = r.source_id
        WHERE r.seq_nr - r.events <> x.expected
        LIMIT 1;
        IF FOUND THEN
            RAISE EXCEPTION 'source % is at seq_nr %, expected %', quote_literal(_wrong.source_id), _wrong.found, _wrong.expected
            USING ERRCODE = 'PJ001', DETAIL = json_build_object(
                'source_id', _wrong.source_id, 'expected', _wrong.expected, 'found', _wrong.found
            );
        END IF;
    END IF;

    RETURN QUERY
    WITH stamped AS (
        SELECT
            i.ordinal, i.source_id, i.entity_type, i.event_type, i.version, i.payload, i.metadata, i.tags, i.event_id, r.slice,
            r.seq_nr - r.events + i.place AS seq_nr,
            r.db_timestamp - (r.events - i.place) * interval '1 microsecond' AS db_timestamp
        FROM (
            SELECT i.*, row_number() OVER (PARTITION BY i.source_id COLLATE "C" ORDER BY i.ordinal) AS place
            FROM unnest(
                p_source_ids, p_entity_types, p_event_types, p_versions, p_payloads, p_metadata, p_tags, p_event_ids
            ) WITH ORDINALITY AS i (
                source_id, entity_type, event_type, version, payload, metadata, tags, event_id, ordinal
            )
            WHERE _stored_ordinals IS NULL OR i.ordinal NOT IN (SELECT unnest(_stored_ordinals))
        ) AS i
        INNER JOIN unnest(_source_ids, _seq_nrs, _timestamps, _slices, _counts)
        AS r (source_id, seq_nr, db_timestamp, slice, events) ON i.source_id COLLATE "C" = r.source_id
        OFFSET 0  -- each value is worked out once, and none is kept twice
    ), identified AS MATERIALIZED (
        SELECT s.*, coalesce(s.event_id, projections._uuid7_of_v1(s.db_timestamp, _seed, s.ordinal)) AS id FROM stamped AS s
    ), inserted AS (
        INSERT INTO projections.events (
            db_timestamp, seq_nr, event_id, slice, version, source_id, entity_type, event_type, payload, metadata, tags
        )
        SELECT
            n.db_timestamp, n.seq_nr, n.id, n.slice, coalesce(n.version, 1), n.source_id, n.entity_type, n.event_type,
            projections.checked_json_v1(n.payload), projections.checked_json_v1(n.metadata), n.tags::text[]
        FROM identified AS n
    )
    SELECT result.source_id, result.seq_nr, result.db_timestamp, result.id, result.is_new
    FROM (
        SELECT n.ordinal, n.source_id, n.seq_nr, n.db_timestamp, n.id, TRUE AS is_new FROM identified AS n
        UNION ALL
        SELECT o.ordinal, i.source_id, o.seq_nr, o.db_timestamp, i.event_id, FALSE
        FROM unnest(_stored_ordinals, _stored_seq_nrs, _stored_timestamps) AS o (ordinal, seq_nr, db_timestamp)
        INNER JOIN unnest(p_source_ids, p_event_ids) WITH ORDINALITY AS i (source_id, event_id, ordinal) ON o.ordinal = i.ordinal
    ) AS result
    ORDER BY result.ordinal;
END;
$$;
