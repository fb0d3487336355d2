-- How the tables that are partitioned by time are kept, a row for each, which the file of the table inserts. It may be changed
-- at any time: the next run of maintenance goes by it, and partitions that are there stay as they are.
CREATE TABLE IF NOT EXISTS projections.partition_settings (
    table_name text PRIMARY KEY,
    -- The time that one partition holds. A day has 24 hours.
    partition_interval interval NOT NULL DEFAULT '1 day',
    -- How many intervals to come have a partition.
    ahead integer NOT NULL DEFAULT 7,
    -- How long a partition is kept after its time, at least; NULL: forever.
    retention interval,
    -- Drop no partition of the journal that the same run has not archived.
    archive_first boolean NOT NULL DEFAULT FALSE,
    CONSTRAINT table_is_partitioned CHECK (pg_get_partkeydef(to_regclass(format('projections.%I', table_name))) IS NOT NULL),
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
-- The journal keeps everything until it is told otherwise: a week each makes 52 partitions a year.
INSERT INTO projections.partition_settings (table_name, partition_interval, ahead) VALUES ('events', '7 days', 2)
ON CONFLICT (table_name) DO NOTHING;
