-- Messages that are sent again and again, at the times of a cron line.
CREATE TABLE IF NOT EXISTS projections.webhook_schedules (
    schedule_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    name text NOT NULL,
    cron text NOT NULL,
    timezone text NOT NULL DEFAULT 'UTC',
    topic text NOT NULL,
    -- text, not json: it is sent as it was written.
    data text NOT NULL,
    -- For this endpoint alone.
    endpoint_id text COLLATE "C" REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    -- What happens to ticks that nobody was there for: none is sent, the last one, or all.
    missed text NOT NULL DEFAULT 'one',
    paused boolean NOT NULL DEFAULT FALSE,
    -- The tick to come; NULL: there is none any more.
    next_at timestamptz,
    -- The last tick that was sent.
    last_at timestamptz,
    -- Why the last tick was not sent.
    error text,
    -- Not looked at before: who looked could not read its line.
    held_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- Counts changes by those who own it; its ticks are none.
    version integer NOT NULL DEFAULT 1,
    UNIQUE (tenant, name),
    CONSTRAINT missed_is_known CHECK (missed IN ('skip', 'one', 'all'))
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_schedules_due_idx') IS NULL THEN
        CREATE INDEX webhook_schedules_due_idx ON projections.webhook_schedules (next_at) WHERE NOT paused;
    END IF;
    -- For tenants in turn; by a hash, so that a random one can be the first.
    IF to_regclass('projections.webhook_schedules_turn_idx') IS NULL THEN
        CREATE INDEX webhook_schedules_turn_idx
        ON projections.webhook_schedules (hashtextextended(tenant, 0), next_at) WHERE NOT paused;
    END IF;
    -- For the removal of an endpoint.
    IF to_regclass('projections.webhook_schedules_endpoint_idx') IS NULL THEN
        CREATE INDEX webhook_schedules_endpoint_idx ON projections.webhook_schedules (endpoint_id) WHERE endpoint_id IS NOT NULL;
    END IF;
END;
$$;
