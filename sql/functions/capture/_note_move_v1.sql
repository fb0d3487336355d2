-- Trigger: counts the rows of an UPDATE or a MERGE whose partition key changes. What a MERGE moves to another partition is in
-- none of the tables that _describe_changes_v1 is given: by the count it sees that something is missing.
CREATE OR REPLACE FUNCTION projections._note_move_v1()
RETURNS trigger
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _place constant text := 'projections.moved_' || pg_trigger_depth();
BEGIN
    PERFORM set_config(_place, (coalesce(nullif(current_setting(_place, TRUE), ''), '0')::bigint + 1)::text, TRUE);
    RETURN NEW;
END;
$$;
