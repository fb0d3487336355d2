-- How many events no page reaches: their place is before the first position, or after the last one.
SELECT
    (SELECT count(*) FROM foreign_events AS e WHERE e.place < place_of(timestamptz 'epoch'))
    + (SELECT count(*) FROM foreign_events AS e WHERE e.place > place_of(timestamptz '9998-12-31 00:00:00+00')) AS events
