-- Keeps events for conditions that are not asked about them: one row for all. p_condition_ids and p_wanted_topics say, side by
-- side, which condition wants which topic; only those in p_apart count. match_events_v1 calls it.
CREATE OR REPLACE FUNCTION projections.keep_unasked_v1(
    p_apart integer[],
    p_condition_ids integer[],
    p_wanted_topics text[],
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_topics text[],
    p_as_of timestamptz[]
)
RETURNS void
LANGUAGE plpgsql
-- The planner takes arrays to be short, and would go through one for each element of another.
SET enable_nestloop = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _wanted record;
    _events record;
BEGIN
    SELECT array_agg(w.condition_id) AS condition_ids, array_agg(w.topic) AS topics, bool_or(w.topic IS NULL) AS open INTO _wanted
    FROM (
        SELECT DISTINCT w.condition_id, w.topic FROM unnest(p_condition_ids, p_wanted_topics) AS w (condition_id, topic)
        WHERE w.condition_id IN (SELECT a.id FROM unnest(p_apart) AS a (id))
        ORDER BY w.condition_id, w.topic
    ) AS w;
    SELECT
        array_agg(e.source_id ORDER BY e.place) AS source_ids, array_agg(e.seq_nr ORDER BY e.place) AS seq_nrs,
        array_agg(e.db_timestamp ORDER BY e.place) AS db_timestamps, array_agg(e.as_of ORDER BY e.place) AS as_of,
        min(e.db_timestamp) AS since, max(e.db_timestamp) AS until
    INTO _events
    FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_topics, p_as_of)
    WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, topic, as_of, place)
    WHERE e.topic IS NOT NULL AND (_wanted.open OR e.topic IN (SELECT w.topic FROM unnest(_wanted.topics) AS w (topic)));
    IF _events.since IS NULL THEN
        RETURN;
    END IF;
    PERFORM projections.lock_matching_v1();
    INSERT INTO projections.unasked (
        page_id, entity_type, condition_ids, topics, source_ids, seq_nrs, db_timestamps, as_of, since, until
    )
    VALUES (
        nextval('projections.match_ids'), p_entity_type, _wanted.condition_ids, _wanted.topics, _events.source_ids,
        _events.seq_nrs, _events.db_timestamps, CASE WHEN p_as_of IS NOT NULL THEN _events.as_of END, _events.since, _events.until
    );
END;
$$;
