-- Replaces the payloads of messages in the journal by null, of those that were sent as messages: events of applications are theirs.
-- With the rights of the schema's owner, for nobody else changes an event. Of those that it finds, returns what the log has of
-- one. A tenant of NULL is any; what is no UUID is no message.
CREATE OR REPLACE FUNCTION projections._erase_sent_v1(p_tenant text, p_event_ids text[])
RETURNS TABLE (event_id text, tenant text, topic text, event_time timestamptz, eligible boolean, metadata text)
LANGUAGE plpgsql
SECURITY DEFINER
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _id text;
    _sent record;
BEGIN
    FOREACH _id IN ARRAY p_event_ids LOOP
        CONTINUE WHEN _id !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$';
        FOR _sent IN
            SELECT
                f.source_id, f.seq_nr, f.db_timestamp, f.event_type, f.metadata::json ->> 'tenant' AS tenant,
                coalesce((f.metadata::json ->> 'eligible_for_retry')::boolean, TRUE) AS eligible,
                coalesce(f.metadata::json ->> 'labels', '{}') AS labels
            FROM projections.find_event_v1(_id::uuid) AS f
            WHERE f.entity_type = 'webhook-message' AND json_typeof(f.metadata::json) = 'object'
        LOOP
            CONTINUE WHEN _sent.tenant IS NULL OR _sent.tenant <> p_tenant;
            UPDATE projections.events AS e SET payload = 'null'
            WHERE e.source_id = _sent.source_id AND e.seq_nr = _sent.seq_nr AND e.db_timestamp = _sent.db_timestamp;
            RETURN QUERY SELECT
                lower(_id), _sent.tenant, _sent.event_type, _sent.db_timestamp, _sent.eligible, _sent.labels;
        END LOOP;
    END LOOP;
END;
$$;
