-- What deliveries of an endpoint are signed with, as the sender's cipher has made it; several while one replaces another.
CREATE TABLE IF NOT EXISTS projections.webhook_secrets (
    secret_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    endpoint_id text COLLATE "C" NOT NULL REFERENCES projections.webhook_endpoints ON DELETE CASCADE,
    secret text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- NULL: until it is replaced.
    expires_at timestamptz
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_secrets_endpoint_idx') IS NULL THEN
        CREATE INDEX webhook_secrets_endpoint_idx ON projections.webhook_secrets (endpoint_id, secret_id);
    END IF;
END;
$$;
