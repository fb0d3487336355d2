-- Keeps events for conditions that are not asked about them: one row for all. Of the interests only those with a condition in p_apart
-- count. _match_events_v1 calls it.
CREATE OR REPLACE FUNCTION projections._keep_unasked_v1(
    p_apart integer[], p_events projections.events_to_match[], p_interests projections.interests[]
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
    SELECT
        array_agg(w.condition_id) AS condition_ids, array_agg(w.topic) AS topics, array_agg(w.entity_type) AS entity_types
    INTO _wanted
    FROM (
        SELECT DISTINCT w.condition_id, w.topic, w.entity_type FROM unnest(p_interests) AS w
        WHERE w.condition_id IN (SELECT a.id FROM unnest(p_apart) AS a (id))
        ORDER BY w.condition_id, w.topic, w.entity_type
    ) AS w;
    SELECT
        array_agg(e.source_id ORDER BY e.ordinality) AS source_ids, array_agg(e.seq_nr ORDER BY e.ordinality) AS seq_nrs,
        array_agg(e.db_timestamp ORDER BY e.ordinality) AS db_timestamps, array_agg(e.as_of ORDER BY e.ordinality) AS as_of,
        bool_or(e.as_of <> e.db_timestamp) AS later, min(e.db_timestamp) AS since, max(e.db_timestamp) AS until
    INTO _events
    FROM unnest(p_events) WITH ORDINALITY AS e
    WHERE e.topic IS NOT NULL AND (
        (e.entity_type, e.topic) IN (
            SELECT w.entity_type, w.topic FROM unnest(_wanted.entity_types, _wanted.topics) AS w (entity_type, topic)
            WHERE w.topic IS NOT NULL
        )
        OR e.entity_type IN (
            SELECT w.entity_type FROM unnest(_wanted.entity_types, _wanted.topics) AS w (entity_type, topic) WHERE w.topic IS NULL
        )
    );
    IF _events.since IS NULL THEN
        RETURN;
    END IF;
    PERFORM projections._lock_matching_v1();
    INSERT INTO projections.unasked (
        page_id, condition_ids, topics, entity_types, source_ids, seq_nrs, db_timestamps, as_of, since, until
    )
    VALUES (
        nextval('projections.match_ids'), _wanted.condition_ids, _wanted.topics, _wanted.entity_types, _events.source_ids,
        _events.seq_nrs, _events.db_timestamps, CASE WHEN _events.later THEN _events.as_of END, _events.since, _events.until
    );
END;
$$;
