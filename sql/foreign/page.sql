-- A page of a slice range's events after a position, found by an index on the place. Ties of a place are ordered as
-- journal.Position is.
SELECT
    e.*,
    FALSE AS cut
FROM foreign_events AS e
WHERE
    e.place >= place_of($4)
    AND e.place <= place_of($8)
    AND (e.place, e.slice, e.source_id, e.seq_nr) > (place_of($4), $5::integer, $6::text, $7::bigint)
    AND ($1::text[] IS NULL OR e.entity_type = any($1))
    AND in_slices(e.slice, $2::integer, $3::integer)
ORDER BY e.place, e.slice, e.source_id, e.seq_nr
LIMIT $9::integer
