-- An event as pages of the journal have it. "more" is TRUE on the last row of a page that its bytes have ended, or the time up to
-- which it has looked.
CREATE OR REPLACE VIEW projections.paged_events AS
SELECT
    e.source_id,
    e.seq_nr,
    e.db_timestamp,
    e.slice,
    e.event_id,
    e.entity_type,
    e.event_type,
    e.version,
    e.payload::text AS payload,
    e.metadata::text AS metadata,
    e.tags,
    FALSE AS more
FROM projections.events AS e;
