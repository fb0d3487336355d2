-- An event as a condition sees it, under the name e.
CREATE OR REPLACE VIEW projections.matchable_events AS
SELECT
    e.source_id,
    e.seq_nr,
    e.db_timestamp,
    e.slice,
    e.event_id,
    e.entity_type,
    e.event_type,
    e.event_type AS topic,
    e.version,
    projections._as_jsonb_v1(e.payload) AS payload,
    projections._as_jsonb_v1(e.metadata) AS metadata,
    e.tags
FROM projections.events AS e;
