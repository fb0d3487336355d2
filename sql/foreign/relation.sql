-- All events, for whoever reads them as a whole: with their place and source as they are stored, by which indexes find them.
SELECT
    foreign_columns,
    e.place,
    e.source
FROM foreign_events AS e
