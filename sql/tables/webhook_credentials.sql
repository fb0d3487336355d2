-- How requests to an endpoint identify themselves in addition to their signature: one of each kind.
CREATE TABLE IF NOT EXISTS projections.webhook_credentials (
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    kind text COLLATE "C" NOT NULL,
    -- What people may see.
    facts json NOT NULL,
    -- The key of a certificate with its chain, or the secret of a client, as the cipher of secrets has made it.
    secret text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT kind_is_known CHECK (kind IN ('certificate', 'oauth')),
    PRIMARY KEY (endpoint_id, kind)
);
