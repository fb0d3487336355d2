-- An event as matching takes it: functions take arrays of such rows. It is for the subscriptions that were there at as_of; one that names a
-- subscription is for that one alone, and without a topic whatever that asks for.
CREATE OR REPLACE VIEW projections.events_to_match AS
SELECT
    e.source_id,
    e.seq_nr,
    e.db_timestamp,
    e.slice,
    e.event_type AS topic,
    e.db_timestamp AS as_of,
    NULL::bigint AS subscription_id,
    e.entity_type
FROM projections.events AS e;
