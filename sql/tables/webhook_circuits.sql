-- How well each endpoint receives: a small row that every claim and every outcome of its deliveries locks for a moment.
CREATE TABLE IF NOT EXISTS projections.webhook_circuits (
    endpoint_id text COLLATE "C" PRIMARY KEY REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    -- Failed attempts since the last success, and the time of the first of them.
    failures integer NOT NULL DEFAULT 0,
    failing_since timestamptz,
    -- Nothing is claimed before: its circuit is open, or it has asked for a pause.
    blocked_until timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- How often the circuit has opened since the last success. While it is not 0, one delivery at a time goes: a probe.
    opened integer NOT NULL DEFAULT 0,
    -- What is left of the rate limit, as of then.
    tokens double precision NOT NULL DEFAULT 0,
    refilled_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- When the journal was last told of a dead letter.
    dead_told_at timestamptz NOT NULL DEFAULT '1970-01-01T00:00:00Z',
    -- Deliveries that have expired since it was made.
    expired bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 50);
