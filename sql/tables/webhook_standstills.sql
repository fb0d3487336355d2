-- Times of more than a minute in which no process could send the ticks of schedules; what was due in them was missed. The row
-- that has not ended says since when nobody has been seen, to 10 seconds.
CREATE TABLE IF NOT EXISTS projections.webhook_standstills (
    ended_at timestamptz PRIMARY KEY DEFAULT 'infinity',
    began_at timestamptz NOT NULL,
    -- Ticks of it, and of older ones that are forgotten, that were not sent, for their schedules do not want all.
    skipped bigint NOT NULL DEFAULT 0
);
