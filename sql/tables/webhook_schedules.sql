-- Messages that are sent again and again, at the times of a cron line.
CREATE TABLE IF NOT EXISTS projections.webhook_schedules (
    schedule_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    topic text NOT NULL,
    data text NOT NULL,
    -- For this endpoint alone.
    endpoint_id text COLLATE "C" REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    -- What becomes of ticks that nobody was there for: none is sent, the last one, or all.
    missed text NOT NULL DEFAULT 'one',
    paused boolean NOT NULL DEFAULT FALSE,
    -- The tick to come; NULL: there is none any more.
    next_at timestamptz,
    last_at timestamptz,
    -- Why the last tick was not sent.
    error text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    UNIQUE (tenant, name),
    CONSTRAINT missed_is_known CHECK (missed IN ('skip', 'one', 'all'))
);
