-- The number of a source's latest event; NULL when it has none.
SELECT e.seq_nr FROM foreign_events AS e WHERE e.source = source_of($1) ORDER BY e.number DESC LIMIT 1
