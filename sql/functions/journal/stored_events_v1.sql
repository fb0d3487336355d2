-- Which events of an append are stored already, by event_id; call it with their sources locked.
-- Raises PJ002 where the id was used for other content. The time inside a UUIDv7 spares the older partitions:
-- an id from more than a day ahead of the database's clock is refused, so an event is never a day older than its id.
CREATE OR REPLACE FUNCTION projections.stored_events_v1(
    p_source_ids text[],
    p_event_types text[],
    p_versions smallint[],
    p_payloads text[],
    p_metadata text[],
    p_tags text[],
    p_event_ids uuid[]
)
RETURNS TABLE (ordinal bigint, seq_nr bigint, db_timestamp timestamptz)
LANGUAGE plpgsql
AS $$
DECLARE
    _since timestamptz;
    _wrong record;
BEGIN
    SELECT i.id, projections.uuid7_time_v1(i.id) AS at INTO _wrong
    FROM unnest(p_event_ids) AS i (id)
    WHERE projections.uuid7_time_v1(i.id) > clock_timestamp() + interval '1 day'
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event_id % carries the time %, more than a day ahead of the database', _wrong.id, _wrong.at
        USING ERRCODE = 'PJ003', HINT = 'Correct the clock that made it.';
    END IF;

    SELECT i.id INTO _wrong FROM unnest(p_event_ids) AS i (id)
    WHERE i.id IS NOT NULL GROUP BY i.id HAVING count(*) > 1 LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event_id % is used twice in one append', _wrong.id USING ERRCODE = 'PJ002';
    END IF;

    -- NULL, when one of the ids has no time, searches all partitions.
    SELECT CASE WHEN bool_and(projections.uuid7_time_v1(i.id) IS NOT NULL)
        THEN min(projections.uuid7_time_v1(i.id)) - interval '1 day' END
    INTO _since
    FROM unnest(p_event_ids) AS i (id) WHERE i.id IS NOT NULL;

    SELECT i.id, i.source_id, e.source_id AS other_source_id INTO _wrong
    FROM unnest(p_source_ids, p_event_types, p_versions, p_payloads, p_metadata, p_tags, p_event_ids)
    AS i (source_id, event_type, version, payload, metadata, tags, id)
    INNER JOIN projections.events AS e ON i.id = e.event_id
    WHERE e.db_timestamp >= coalesce(_since, '1970-01-01T00:00:00Z')
    AND (i.source_id, i.event_type, coalesce(i.version, 1), i.payload, i.metadata, i.tags::text[])
        IS DISTINCT FROM (e.source_id, e.event_type, e.version, e.payload::text, e.metadata::text, e.tags)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'event_id % is stored with other content, for source %', _wrong.id, quote_literal(_wrong.other_source_id)
        USING ERRCODE = 'PJ002';
    END IF;

    RETURN QUERY
    SELECT i.ordinal, e.seq_nr, e.db_timestamp
    FROM unnest(p_event_ids) WITH ORDINALITY AS i (id, ordinal)
    INNER JOIN projections.events AS e ON i.id = e.event_id
    WHERE e.db_timestamp >= coalesce(_since, '1970-01-01T00:00:00Z');
END;
$$;
