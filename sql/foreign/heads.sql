-- The keys of a page, and what the events are.
SELECT
    e.source_id,
    e.seq_nr,
    time_of(e.place) AS db_timestamp,
    e.slice,
    e.event_type,
    e.entity_type,
    e.cut AS more
FROM foreign_page AS e
ORDER BY e.place, e.slice, e.source_id, e.seq_nr
