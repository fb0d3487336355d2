-- The numbers of matches: a group's cursor is one of them.
CREATE SEQUENCE IF NOT EXISTS projections.match_ids;

-- What matched: one row for each event and group. Insert-only; old rows leave with their partition.
CREATE TABLE IF NOT EXISTS projections.matches (
    match_id bigint NOT NULL,
    group_id integer NOT NULL,
    slice smallint NOT NULL,
    seq_nr bigint NOT NULL,
    db_timestamp timestamptz NOT NULL,
    matched_at timestamptz NOT NULL,
    source_id text COLLATE "C" NOT NULL,
    subscription_ids bigint[] NOT NULL,
    PRIMARY KEY (group_id, match_id, slice, matched_at)
) PARTITION BY RANGE (matched_at);

-- Takes what no other partition takes: a missed maintenance run never stops matching.
CREATE TABLE IF NOT EXISTS projections.matches_default PARTITION OF projections.matches DEFAULT;

-- What matched is kept for a week, and until it is read.
INSERT INTO projections.partition_settings (table_name, retention) VALUES ('matches', '7 days')
ON CONFLICT (table_name) DO NOTHING;
