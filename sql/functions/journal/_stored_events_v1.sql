-- Which events of an append are stored already, by event_id, and where; call it with their sources locked, or with the ids taken
-- where they are of messages. A message is the same whatever its source, and the key of its order.
-- Raises PJ002 where the id was used for other content. The time inside a UUIDv7 spares the older partitions:
-- an id from more than a day ahead of the database's clock is refused, so an event is never a day older than its id.
-- The clock as it was when the statement began: an event has had its time since, and has waited for the locks of other sources.
CREATE OR REPLACE FUNCTION projections._stored_events_v1(
    p_source_ids text[],
    p_entity_types text[],
    p_event_types text[],
    p_versions smallint[],
    p_payloads text[],
    p_metadata text[],
    p_tags text[],
    p_event_ids uuid[]
)
RETURNS TABLE (ordinal bigint, source_id text, seq_nr bigint, db_timestamp timestamptz)
LANGUAGE plpgsql
-- Looks up each id, however many there are: a plan made for many would rather read the log. Where there are many partitions, it is
-- planned with the time of the oldest id as a value: none that ends before it is opened.
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _since timestamptz;
    _latest timestamptz;
    _ordinals bigint[];
    _source_ids text[];
    _seq_nrs bigint[];
    _timestamps timestamptz[];
    _wrong uuid;
    _other integer;
BEGIN
    -- Without a time in one of the ids all partitions are searched.
    SELECT CASE WHEN bool_and(i.at IS NOT NULL) THEN min(i.at) - interval '1 day' ELSE '1970-01-01T00:00:00Z' END, max(i.at)
    INTO _since, _latest
    FROM (
        SELECT projections._uuid7_time_v1(u.id) AS at FROM unnest(p_event_ids) AS u (id) WHERE u.id IS NOT NULL
        OFFSET 0  -- worked out once for each
    ) AS i;
    IF _latest > statement_timestamp() + interval '1 day' THEN
        SELECT i.id INTO _wrong FROM unnest(p_event_ids) AS i (id) WHERE projections._uuid7_time_v1(i.id) = _latest LIMIT 1;
        RAISE EXCEPTION 'event_id % carries the time %, more than a day ahead of the database', _wrong, _latest
        USING ERRCODE = 'PJ003', HINT = 'Correct the clock that made it.';
    END IF;

    IF cardinality(p_event_ids) > 1 THEN
        SELECT i.id INTO _wrong FROM unnest(p_event_ids) AS i (id)
        WHERE i.id IS NOT NULL GROUP BY i.id HAVING count(*) > 1 LIMIT 1;
    END IF;
    IF _wrong IS NOT NULL THEN
        RAISE EXCEPTION 'event_id % is used twice in one append', _wrong USING ERRCODE = 'PJ002';
    END IF;

    IF NOT projections._few_partitions_v1() THEN
        PERFORM set_config('plan_cache_mode', 'force_custom_plan', TRUE);
    END IF;
    -- Where an id has several events, for writers named several sources at a time, it stands for the first with this content.
    SELECT
        array_agg(f.ordinal), array_agg(f.source_id), array_agg(f.seq_nr), array_agg(f.db_timestamp),
        min(f.place) FILTER (WHERE NOT f.is_same)
    INTO _ordinals, _source_ids, _seq_nrs, _timestamps, _other
    FROM (
        SELECT f.*, row_number() OVER (ORDER BY f.ordinal) AS place
        FROM (
            SELECT DISTINCT ON (i.ordinal) i.ordinal, e.source_id, e.seq_nr, e.db_timestamp, e.is_same
            FROM unnest(p_source_ids, p_entity_types, p_event_types, p_versions, p_payloads, p_metadata, p_tags, p_event_ids)
            WITH ORDINALITY AS i (source_id, entity_type, event_type, version, payload, metadata, tags, id, ordinal)
            CROSS JOIN LATERAL (
                SELECT
                    e.source_id, e.seq_nr, e.db_timestamp,
                    (i.event_type, coalesce(i.version, 1), i.tags::text[]) IS NOT DISTINCT FROM (e.event_type, e.version, e.tags)
                    AND projections._same_json_v1(i.payload, e.payload::text)
                    AND CASE
                        WHEN i.entity_type = e.entity_type AND e.entity_type = 'webhook-message' THEN
                            projections._same_json_v1(projections._unordered_v1(i.metadata), projections._unordered_v1(e.metadata::text))
                        ELSE projections._same_json_v1(i.metadata, e.metadata::text)
                    END
                    AND (
                        i.source_id = e.source_id
                        OR (i.entity_type = e.entity_type AND e.entity_type = ANY (projections._message_types_v1()))
                    ) AS is_same
                FROM projections.events AS e WHERE e.event_id = i.id AND e.db_timestamp >= _since OFFSET 0
            ) AS e
            ORDER BY i.ordinal, e.is_same DESC, e.db_timestamp, e.source_id
        ) AS f
        ORDER BY f.ordinal
    ) AS f;
    IF _other IS NOT NULL THEN
        RAISE EXCEPTION 'event_id % is stored with other content than it has now for source %: it is event % of source %',
            p_event_ids[_ordinals[_other]], quote_literal(p_source_ids[_ordinals[_other]]), _seq_nrs[_other],
            quote_literal(_source_ids[_other])
        USING ERRCODE = 'PJ002';
    END IF;
    RETURN QUERY SELECT * FROM unnest(_ordinals, _source_ids, _seq_nrs, _timestamps);
END;
$$;
