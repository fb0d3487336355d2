-- Where webhooks of a tenant go, and which. What changes with each delivery is in webhook_circuits.
CREATE TABLE IF NOT EXISTS projections.webhook_endpoints (
    endpoint_id text COLLATE "C" PRIMARY KEY,
    tenant text COLLATE "C" NOT NULL,
    url text NOT NULL,
    description text NOT NULL DEFAULT '',
    topics text[] NOT NULL DEFAULT '{**}',
    -- NULL: all events of its topics.
    filter json,
    headers json NOT NULL DEFAULT '{}',
    state text NOT NULL DEFAULT 'active',
    -- Why it is not active.
    reason text,
    -- Retry schedule, deadline, circuit: projections.webhooks.RetryPolicy as JSON, times in seconds.
    policy jsonb NOT NULL,
    -- Deliveries on their way at a time, over all workers.
    max_in_flight integer NOT NULL DEFAULT 10,
    -- Deliveries in a second, over all workers; NULL: as many as there are.
    rate_limit double precision,
    -- What is delivered one after the other: nothing, all with the same key, or everything.
    ordering text NOT NULL DEFAULT 'none',
    -- Whether a dead letter holds back what comes after it in the order.
    on_dead text NOT NULL DEFAULT 'skip',
    -- What happens to events while it is disabled.
    when_disabled text NOT NULL DEFAULT 'keep',
    gzip boolean NOT NULL DEFAULT FALSE,
    -- Counts changes; those who remember an endpoint compare it.
    version integer NOT NULL DEFAULT 1,
    -- Events from before are not for it.
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- The URL that has shown that it wants webhooks. It is verified while this is its URL.
    verified_url text,
    CONSTRAINT tenant_has_1_to_200_characters CHECK (char_length(tenant) BETWEEN 1 AND 200),
    CONSTRAINT url_has_1_to_2048_characters CHECK (char_length(url) BETWEEN 1 AND 2048),
    CONSTRAINT state_is_known CHECK (state IN ('active', 'paused', 'disabled')),
    CONSTRAINT max_in_flight_is_1_to_1000 CHECK (max_in_flight BETWEEN 1 AND 1000),
    CONSTRAINT rate_limit_is_positive CHECK (rate_limit BETWEEN 0.000001 AND 100000),
    CONSTRAINT ordering_is_known CHECK (ordering IN ('none', 'key', 'endpoint')),
    CONSTRAINT on_dead_is_known CHECK (on_dead IN ('skip', 'block')),
    CONSTRAINT when_disabled_is_known CHECK (when_disabled IN ('keep', 'discard'))
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_endpoints_tenant_idx') IS NULL THEN
        CREATE INDEX webhook_endpoints_tenant_idx ON projections.webhook_endpoints (tenant, endpoint_id);
    END IF;
    -- Whether more than one tenant is sent to.
    IF to_regclass('projections.webhook_endpoints_active_idx') IS NULL THEN
        CREATE INDEX webhook_endpoints_active_idx ON projections.webhook_endpoints (tenant) WHERE state = 'active';
    END IF;
END;
$$;
