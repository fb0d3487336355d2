-- What events of a type have in common: a condition that needs no more is asked once for each type.
CREATE OR REPLACE VIEW projections.matchable_types AS
SELECT
    e.entity_type,
    e.event_type,
    e.topic
FROM projections.matchable_events AS e;
