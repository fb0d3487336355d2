-- Deliveries of events from before were forgotten: should their events be read again, they are not delivered again.
CREATE TABLE IF NOT EXISTS projections.webhook_forgotten (
    the_only_row boolean PRIMARY KEY DEFAULT TRUE CHECK (the_only_row),
    before timestamptz NOT NULL
);
INSERT INTO projections.webhook_forgotten (before) VALUES ('1970-01-01T00:00:00Z') ON CONFLICT (the_only_row) DO NOTHING;
