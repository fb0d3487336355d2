-- Who reads for a group. One that has not been heard of until its lease ends is gone, and its ranges are free.
CREATE TABLE IF NOT EXISTS projections.group_readers (
    group_id integer NOT NULL REFERENCES projections.subscription_groups ON DELETE CASCADE,
    owner text NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    -- The handlers that it has.
    handlers integer[] NOT NULL DEFAULT '{}',
    PRIMARY KEY (group_id, owner)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
