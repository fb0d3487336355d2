-- Each try to deliver an event to an endpoint. Its payload is with the event; old rows leave with their partition.
CREATE TABLE IF NOT EXISTS projections.webhook_attempts (
    attempted_at timestamptz NOT NULL,
    event_time timestamptz NOT NULL,
    took interval,
    attempt_number integer NOT NULL,
    manual boolean NOT NULL,
    attempt_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    endpoint_id text COLLATE "C" NOT NULL,
    endpoint_type text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    -- The HTTP status, or a word for why there was none.
    code text COLLATE "C",
    response text,
    CONSTRAINT attempts_begin_with_1 CHECK (attempt_number >= 1),
    CONSTRAINT status_is_success_or_failed CHECK (status IN ('success', 'failed')),
    PRIMARY KEY (attempted_at, attempt_id)
) PARTITION BY RANGE (attempted_at);

-- Each list walks one of them in its order, from where its page begins; the primary key is that of a list of everything.
DO $$
BEGIN
    IF to_regclass('projections.webhook_attempts_tenant_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_tenant_idx ON projections.webhook_attempts (tenant, attempted_at, attempt_id);
    END IF;
    IF to_regclass('projections.webhook_attempts_tenant_topic_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_tenant_topic_idx ON projections.webhook_attempts (tenant, topic, attempted_at, attempt_id);
    END IF;
    IF to_regclass('projections.webhook_attempts_topic_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_topic_idx ON projections.webhook_attempts (topic, attempted_at, attempt_id);
    END IF;
    -- An endpoint, and an event, have one tenant: with and without it, the same index does.
    IF to_regclass('projections.webhook_attempts_endpoint_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_endpoint_idx ON projections.webhook_attempts (endpoint_id, attempted_at, attempt_id);
    END IF;
    IF to_regclass('projections.webhook_attempts_event_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_event_idx ON projections.webhook_attempts (event_id, attempted_at, attempt_id);
    END IF;
    -- What succeeded is most of it, and found by walking in time; what failed may be rare.
    IF to_regclass('projections.webhook_attempts_tenant_failed_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_tenant_failed_idx
        ON projections.webhook_attempts (tenant, attempted_at, attempt_id) WHERE status = 'failed';
    END IF;
    IF to_regclass('projections.webhook_attempts_failed_idx') IS NULL THEN
        CREATE INDEX webhook_attempts_failed_idx ON projections.webhook_attempts (attempted_at, attempt_id) WHERE status = 'failed';
    END IF;
END;
$$;

-- Takes what no other partition takes: a missed maintenance run never stops a delivery.
CREATE TABLE IF NOT EXISTS projections.webhook_attempts_default PARTITION OF projections.webhook_attempts DEFAULT;

-- How it was delivered is kept for a month.
INSERT INTO projections.partition_settings (table_name, retention) VALUES ('webhook_attempts', '30 days')
ON CONFLICT (table_name) DO NOTHING;
