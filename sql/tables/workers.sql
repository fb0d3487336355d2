-- Who holds slices: the processes that run projections, and those who read for a group. One that has not been heard of until
-- its lease ends is gone, and the ranges that it owns are free; all times are this database's.
CREATE TABLE IF NOT EXISTS projections.workers (
    owner text PRIMARY KEY,
    host text NOT NULL,
    pid integer NOT NULL,
    projection_ids integer[] NOT NULL,
    joined_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until timestamptz NOT NULL,
    -- It finishes its batches and takes nothing new.
    leaving boolean NOT NULL DEFAULT FALSE,
    -- Its last heartbeat, counted by it: one that remembers a later one learns that the database went back in time.
    beats bigint NOT NULL DEFAULT 0,
    -- The group that it reads for, and the handlers that it has for it.
    group_id integer REFERENCES projections.subscription_groups ON DELETE CASCADE,
    handlers integer[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
