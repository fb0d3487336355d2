-- What one process at a time does for all, and when one last took its turn.
CREATE TABLE IF NOT EXISTS projections.turns (
    chore text PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
