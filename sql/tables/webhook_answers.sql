-- What requests to the API with an idempotency-key were answered, by who asked: asked again, the answer is the same.
CREATE TABLE IF NOT EXISTS projections.webhook_answers (
    -- Who asked; administrators are '', which no tenant is.
    tenant text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    -- A digest of the request, and the answer, which may hold a new secret: as the cipher of secrets has made it.
    answer text NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (tenant, key)
);
DO $$
BEGIN
    IF to_regclass('projections.webhook_answers_expires_at_idx') IS NULL THEN
        CREATE INDEX webhook_answers_expires_at_idx ON projections.webhook_answers (expires_at);
    END IF;
END;
$$;
