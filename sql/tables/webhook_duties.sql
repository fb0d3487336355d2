-- What one process at a time does for all: who, and until when. The lease is for liveness; what a duty does is safe twice.
CREATE TABLE IF NOT EXISTS projections.webhook_duties (
    duty text PRIMARY KEY,
    owner text NOT NULL,
    lease_until timestamptz NOT NULL
);
