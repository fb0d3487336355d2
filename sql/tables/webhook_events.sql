-- The events that were for endpoints of webhooks, once each. Insert-only; old rows leave with their partition.
CREATE TABLE IF NOT EXISTS projections.webhook_events (
    event_time timestamptz NOT NULL,
    eligible_for_retry boolean NOT NULL,
    event_id text COLLATE "C" NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    topic text COLLATE "C" NOT NULL,
    endpoint_ids text[] COLLATE "C" NOT NULL,
    metadata jsonb NOT NULL,
    -- text, not jsonb: it stays as it was written, key order and numbers included.
    -- NULL: it was erased.
    data text,
    -- What it was in order with, if that is not its id.
    order_key text COLLATE "C",
    erased_at timestamptz,
    PRIMARY KEY (event_time, event_id)
) PARTITION BY RANGE (event_time);

-- Each list walks one of them in its order, from where its page begins; the primary key is that of a list of everything.
DO $$
BEGIN
    IF to_regclass('projections.webhook_events_tenant_idx') IS NULL THEN
        CREATE INDEX webhook_events_tenant_idx ON projections.webhook_events (tenant, event_time, event_id);
    END IF;
    IF to_regclass('projections.webhook_events_tenant_topic_idx') IS NULL THEN
        CREATE INDEX webhook_events_tenant_topic_idx ON projections.webhook_events (tenant, topic, event_time, event_id);
    END IF;
    IF to_regclass('projections.webhook_events_topic_idx') IS NULL THEN
        CREATE INDEX webhook_events_topic_idx ON projections.webhook_events (topic, event_time, event_id);
    END IF;
    -- Has no order: it is for endpoints with few events; those of one with many are soon found by walking in time.
    IF to_regclass('projections.webhook_events_endpoint_ids_idx') IS NULL THEN
        CREATE INDEX webhook_events_endpoint_ids_idx ON projections.webhook_events USING gin (endpoint_ids);
    END IF;
END;
$$;

-- Takes what no other partition takes: a missed maintenance run never stops a delivery.
CREATE TABLE IF NOT EXISTS projections.webhook_events_default PARTITION OF projections.webhook_events DEFAULT;

-- What was delivered is kept for a month.
INSERT INTO projections.partition_settings (table_name, retention) VALUES ('webhook_events', '30 days')
ON CONFLICT (table_name) DO NOTHING;
