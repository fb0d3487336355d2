-- How the tables that are partitioned by time are kept, a row for each. It may be changed at any time: the next run of
-- maintenance goes by it, and partitions that are there stay as they are.
CREATE TABLE IF NOT EXISTS projections.partition_settings (
    table_name text PRIMARY KEY,
    -- The time that one partition holds. A day has 24 hours.
    partition_interval interval NOT NULL DEFAULT '1 day',
    -- How many intervals to come have a partition.
    ahead integer NOT NULL DEFAULT 7,
    -- How long a partition is kept after its time, at least; NULL: for ever.
    retention interval,
    -- Drop no partition of the journal that the same run has not archived.
    archive_first boolean NOT NULL DEFAULT FALSE,
    CONSTRAINT table_is_partitioned_by_time CHECK (table_name IN ('events', 'matches', 'webhook_events', 'webhook_attempts')),
    CONSTRAINT interval_is_1_minute_to_366_days_in_seconds CHECK (
        partition_interval >= '1 minute' AND partition_interval <= '366 days'
        AND date_trunc('second', partition_interval) = partition_interval
    ),
    -- Months and years differ in length.
    CONSTRAINT interval_has_no_months CHECK (
        extract(YEAR FROM partition_interval) = 0 AND extract(MONTH FROM partition_interval) = 0
    ),
    CONSTRAINT ahead_is_1_to_1000 CHECK (ahead BETWEEN 1 AND 1000),
    CONSTRAINT retention_is_at_least_1_minute CHECK (retention >= '1 minute'),
    CONSTRAINT only_events_are_archived CHECK (table_name = 'events' OR NOT archive_first)
);
-- The journal keeps everything until it is told otherwise: a week each makes 52 partitions a year. What matched is kept for a
-- week, and until it is read; what was delivered, and how, for a month.
INSERT INTO projections.partition_settings (table_name, partition_interval, ahead, retention) VALUES
('events', '7 days', 2, NULL), ('matches', '1 day', 7, '7 days'),
('webhook_events', '1 day', 7, '30 days'), ('webhook_attempts', '1 day', 7, '30 days')
ON CONFLICT (table_name) DO NOTHING;
