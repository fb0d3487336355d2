-- Which messages of webhooks were erased, also of those whose partition had left the log: a payload that an archive still has does
-- not come back. Kept for good. A tenant of '' is any.
CREATE TABLE IF NOT EXISTS projections.erased_messages (
    event_id uuid NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_id, tenant)
);
