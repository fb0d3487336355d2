-- One identity of messages; archives that equal what is dropped; rows that keep what a Table does not declare.
-- The ids of messages, which are unique whatever their source.
CREATE TABLE projections.message_ids (
    event_id uuid PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
DROP FUNCTION IF EXISTS projections._same_event_ids_v1(text[], text[], smallint[], text[], text[], text[], uuid[]);
CREATE INDEX message_ids_taken_at_idx ON projections.message_ids (taken_at);
-- What is dropped is compared with what is archived, row by row.
DROP FUNCTION IF EXISTS projections._drop_partition_v1(text, boolean, bigint);
-- What maintenance moves is cut into pieces.
DROP FUNCTION IF EXISTS projections._missing_partitions_v1(interval, integer, text);
DROP FUNCTION IF EXISTS projections._lock_partition_v1(text, integer, interval);
-- Erased messages do not come back from an archive.
CREATE TABLE projections.erased_messages (
    event_id uuid NOT NULL,
    tenant text COLLATE "C" NOT NULL,
    erased_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (event_id, tenant)
);
INSERT INTO projections.erased_messages (event_id, tenant)
SELECT
    e.event_id,
    e.metadata::json ->> 'tenant'
FROM projections.events AS e
WHERE
    e.entity_type = 'webhook-message' AND e.payload::text = 'null'
    AND CASE WHEN json_typeof(e.metadata::json) = 'object' THEN e.metadata::json ->> 'tenant' IS NOT NULL END
ON CONFLICT DO NOTHING;
DROP FUNCTION IF EXISTS projections._erase_messages_v1(text, text[]);
DROP FUNCTION IF EXISTS projections._erase_many_messages_v1(
    text, text, text[], timestamptz, timestamptz, timestamptz, text, integer
);
-- What a Table does not declare is kept by its key when rows are replaced.
ALTER TABLE projections.rebuild_tables ADD COLUMN columns text[], ADD COLUMN key_columns text[];
DROP FUNCTION IF EXISTS projections._unfit_for_rename_v1(regclass);
-- A page of the delivery log is cut by its bytes.
DROP FUNCTION IF EXISTS projections._list_logged_events_v1;
DROP FUNCTION IF EXISTS projections._list_logged_attempts_v1;
-- Subscriptions are found by params and topic at a time.
DROP INDEX projections.subscriptions_params_idx;
DROP FUNCTION IF EXISTS projections._make_condition_v1(integer, text, boolean);
DROP FUNCTION IF EXISTS projections._check_condition_v1(integer, text);
