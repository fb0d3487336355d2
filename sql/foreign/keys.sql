-- The keys of a page.
SELECT
    e.source_id,
    e.seq_nr,
    time_of(e.place) AS db_timestamp,
    e.slice,
    e.cut AS more
FROM foreign_page AS e
ORDER BY e.place, e.slice, e.source_id, e.seq_nr
