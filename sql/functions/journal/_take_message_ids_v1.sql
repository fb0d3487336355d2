-- Takes the ids of messages until the caller's transaction ends: who takes one of them meanwhile waits, and finds what was stored.
-- In one order, so that two of these never wait for each other. Who reads an older snapshot than that in which an id was taken
-- last gets 40001, for he would not find it.
CREATE OR REPLACE FUNCTION projections._take_message_ids_v1(p_entity_types text[], p_event_ids uuid[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO projections.message_ids AS m (event_id, taken_at)
    SELECT DISTINCT i.id, statement_timestamp()
    FROM unnest(p_entity_types, p_event_ids) AS i (entity_type, id)
    WHERE i.id IS NOT NULL AND i.entity_type = ANY (projections._message_types_v1())
    ORDER BY i.id
    ON CONFLICT (event_id) DO UPDATE SET taken_at = excluded.taken_at;
END;
$$;
