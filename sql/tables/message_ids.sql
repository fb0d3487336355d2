-- The ids that writers gave to messages: to events whose source no writer names (_message_types_v1). A message is found by its id
-- whatever its source, so a row of it here takes the place of the source's lock. The row is left behind for an hour: who reads
-- an older snapshot (REPEATABLE READ) cannot see the message, but the row refuses him.
CREATE TABLE IF NOT EXISTS projections.message_ids (
    event_id uuid PRIMARY KEY,
    taken_at timestamptz NOT NULL
);
DO $$
BEGIN
    IF to_regclass('projections.message_ids_taken_at_idx') IS NULL THEN
        CREATE INDEX message_ids_taken_at_idx ON projections.message_ids (taken_at);
    END IF;
END;
$$;
