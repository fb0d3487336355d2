-- One event for one endpoint, whatever its outcome. The payload is in webhook_events; a dead letter has a copy.
CREATE TABLE IF NOT EXISTS projections.webhook_deliveries (
    delivery_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    event_id text COLLATE "C" NOT NULL,
    event_time timestamptz NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    topic text NOT NULL,
    -- NULL: in no order. Of those with the same, one at a time is not 'waiting'.
    order_key text COLLATE "C",
    state text NOT NULL,
    -- Attempts that are used up, with the one on its way.
    attempts integer NOT NULL DEFAULT 0,
    -- The next attempt, or the one on its way, was asked for by a person.
    manual boolean NOT NULL DEFAULT FALSE,
    next_at timestamptz NOT NULL,
    -- Of an attempt on its way: after that time it counts as lost, and only who has the token may say its outcome. The
    -- token is random: a number of a sequence is given out again after a fail-over, for another attempt.
    lease_until timestamptz,
    lease_token bigint,
    last_code text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    -- Of a dead letter: its payload, which outlives the log.
    data text,
    -- Not attempted from then on; NULL: whenever it is.
    expires_at timestamptz,
    -- Somebody has erased its payload.
    erased boolean NOT NULL DEFAULT FALSE,
    UNIQUE (endpoint_id, event_id),
    CONSTRAINT state_is_known CHECK (state IN ('waiting', 'pending', 'leased', 'done', 'dead', 'dropped', 'expired', 'erased'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_insert_scale_factor = 0.1);
DO $$
BEGIN
    IF to_regclass('projections.webhook_deliveries_due_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_due_idx ON projections.webhook_deliveries (tenant, endpoint_id, next_at, delivery_id)
        WHERE state = 'pending';
    END IF;
    -- Whether anything is due, however many endpoints have what is for later.
    IF to_regclass('projections.webhook_deliveries_next_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_next_idx ON projections.webhook_deliveries (next_at, endpoint_id)
        WHERE state = 'pending';
    END IF;
    IF to_regclass('projections.webhook_deliveries_leased_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_leased_idx ON projections.webhook_deliveries (endpoint_id, lease_until)
        WHERE state = 'leased';
    END IF;
    IF to_regclass('projections.webhook_deliveries_order_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_order_idx ON projections.webhook_deliveries (endpoint_id, order_key, delivery_id)
        WHERE order_key IS NOT NULL AND state IN ('waiting', 'pending', 'leased', 'dead');
    END IF;
    IF to_regclass('projections.webhook_deliveries_dead_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_dead_idx ON projections.webhook_deliveries (tenant, delivery_id)
        WHERE state = 'dead';
    END IF;
    -- Counted by endpoint, and the newest of one listed.
    IF to_regclass('projections.webhook_deliveries_held_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_held_idx ON projections.webhook_deliveries (endpoint_id, state, delivery_id)
        WHERE state IN ('waiting', 'dead');
    END IF;
    IF to_regclass('projections.webhook_deliveries_expiry_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_expiry_idx ON projections.webhook_deliveries (expires_at)
        WHERE expires_at IS NOT NULL AND state IN ('waiting', 'pending', 'dead');
    END IF;
    IF to_regclass('projections.webhook_deliveries_time_idx') IS NULL THEN
        CREATE INDEX webhook_deliveries_time_idx ON projections.webhook_deliveries (event_time, delivery_id);
    END IF;
END;
$$;
