-- All events, for whoever reads them as a whole.
SELECT foreign_columns
FROM foreign_events AS e -- noqa: AL05
