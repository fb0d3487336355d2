-- The sources of each entity type, as a whole. The slice of one that has to be computed is computed once, and not for each of its rows.
SELECT
    s.source,
    s.source_id,
    s.entity_type,
    s.seq_nr,
    time_of(s.place) AS db_timestamp,
    s.events,
    slice_of(s.source_id, s.slice) AS slice
FROM (
    SELECT
        e.source,
        min(e.source_id) AS source_id,
        e.entity_type,
        max(e.seq_nr) AS seq_nr,
        max(e.place) AS place,
        count(*) AS events,
        min(e.stored_slice) AS slice
    FROM foreign_events AS e
    GROUP BY e.source, e.entity_type
) AS s
