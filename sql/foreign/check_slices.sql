-- How many events are in slices that there are not.
SELECT count(*) AS events
FROM foreign_events AS e
WHERE e.slice NOT BETWEEN 0 AND 1023
