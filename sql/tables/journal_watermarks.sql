-- Of journals in other databases whose order is that of numbers: where their end was when. A number is not a time, so this is what tells
-- how old an event is, to within ten seconds: for its lag, and for how long offsets are kept. Times are of the clock here.
CREATE TABLE IF NOT EXISTS projections.journal_watermarks (
    journal text NOT NULL,
    -- As an event's db_timestamp: the number n is the time n microseconds after 1970.
    place timestamptz NOT NULL,
    -- By then all numbers before the place had been drawn.
    reached_at timestamptz NOT NULL,
    -- When it was last seen there: no number from the place on had been drawn yet.
    seen_at timestamptz NOT NULL,
    PRIMARY KEY (journal, place)
);
