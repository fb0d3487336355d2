-- Publishes payloads under topics, inside the caller's transaction; returns a row for each, in order. They are events of the
-- publisher's own source ('publisher/NAME', entity type 'published'): their order is kept, and a million of them are one source.
-- Processes that publish at the same time each have a name of their own, or wait for one another.
--
-- Arrays run in parallel. Events that are for one subscription, or for later, have the tag 'directed': they are not history for
-- others. With p_subscription_ids an event goes to that subscription alone; with p_not_before it is matched
-- then, and no earlier. Raises PJ081 where that is invalid or a topic is a pattern, and what append_events_v1 raises.
-- It has the rights of the schema's owner, as append_events_v1 has.
CREATE OR REPLACE FUNCTION projections.publish_v1(
    p_publisher text,
    p_topics text[],
    p_payloads text[],
    p_metadata text[] DEFAULT NULL,
    p_event_ids uuid[] DEFAULT NULL,
    p_subscription_ids bigint[] DEFAULT NULL,
    p_not_before timestamptz[] DEFAULT NULL
)
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz, event_id uuid)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _sources text[] := array_fill('publisher/' || p_publisher, ARRAY[cardinality(p_topics)]);
    _types text[] := array_fill('published'::text, ARRAY[cardinality(p_topics)]);
    _tags text[] := ARRAY(
        SELECT CASE WHEN d.subscription_id IS NOT NULL OR d.not_before IS NOT NULL THEN '{directed}' END
        FROM unnest(p_topics, p_subscription_ids, p_not_before) WITH ORDINALITY AS d (topic, subscription_id, not_before, place)
        ORDER BY d.place
    );
    _unknown bigint;
BEGIN
    -- Its source has at most 255.
    IF coalesce(char_length(p_publisher), 0) NOT BETWEEN 1 AND 245 THEN
        RAISE EXCEPTION 'the name of a publisher has 1 to 245 characters, not %', coalesce(char_length(p_publisher)::text, 'NULL')
        USING ERRCODE = 'PJ081';
    END IF;
    IF EXISTS (SELECT FROM unnest(p_topics) AS t (topic) WHERE strpos(t.topic, '*') > 0) THEN
        RAISE EXCEPTION 'the topic % is a pattern: publish under the name of one topic',
            (SELECT quote_literal(min(t.topic)) FROM unnest(p_topics) AS t (topic) WHERE strpos(t.topic, '*') > 0) USING ERRCODE = 'PJ081';
    END IF;
    IF EXISTS (SELECT FROM unnest(p_topics) AS t (topic) WHERE t.topic <> '' AND '.' || t.topic || '.' LIKE '%..%') THEN
        PERFORM projections._topic_patterns_v1(p_topics);  -- says what is wrong
    END IF;
    IF cardinality(p_subscription_ids) <> cardinality(p_topics) OR cardinality(p_not_before) <> cardinality(p_topics) THEN
        RAISE EXCEPTION 'there are % topics, and % subscriptions or % times for them',
            cardinality(p_topics), cardinality(p_subscription_ids), cardinality(p_not_before) USING ERRCODE = 'PJ081';
    END IF;
    IF p_subscription_ids IS NULL AND p_not_before IS NULL THEN
        RETURN QUERY SELECT a.source_id, a.seq_nr, a.db_timestamp, a.event_id FROM projections.append_events_v1(
            _sources, _types, p_topics, p_payloads, NULL, p_metadata, NULL, p_event_ids
        ) AS a;
        RETURN;
    END IF;
    SELECT u.id INTO _unknown FROM unnest(p_subscription_ids) AS u (id)
    WHERE u.id IS NOT NULL AND NOT EXISTS (SELECT FROM projections.subscriptions AS s WHERE s.subscription_id = u.id) LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'there is no subscription %', _unknown USING ERRCODE = 'PJ081';
    END IF;
    -- An event that was published before may have been matched since: only what is new is directed.
    RETURN QUERY
    WITH appended AS (
        SELECT a.*, row_number() OVER () AS place
        FROM projections.append_events_v1(_sources, _types, p_topics, p_payloads, NULL, p_metadata, _tags, p_event_ids) AS a
    ), directed AS (
        INSERT INTO projections.directed_events AS d (source_id, seq_nr, db_timestamp, slice, topic, subscription_id, not_before)
        SELECT
            a.source_id, a.seq_nr, a.db_timestamp, projections.slice_of_v1(a.source_id), p_topics[a.place],
            p_subscription_ids[a.place], p_not_before[a.place]
        FROM appended AS a
        WHERE a.is_new
        AND (p_subscription_ids[a.place] IS NOT NULL OR p_not_before[a.place] IS NOT NULL)
    )
    SELECT a.source_id, a.seq_nr, a.db_timestamp, a.event_id FROM appended AS a ORDER BY a.place;
END;
$$;
