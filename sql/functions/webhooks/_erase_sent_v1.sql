-- Replaces the payloads of messages in the journal by null, of those that were sent as messages: events of applications are theirs.
-- With the rights of the schema's owner, for nobody else changes an event. Of those that it finds, returns what the log has of
-- one. A tenant of NULL is any; what is no UUID is no message.
-- A partition that is being compared with an archive is waited for 2 s, no longer: the caller may hold the circuits of the tenant.
-- Each is noted as erased, also where the journal has no event of that id: its partition may be in an archive.
CREATE OR REPLACE FUNCTION projections._erase_sent_v1(p_tenant text, p_event_ids text[])
RETURNS TABLE (event_id text, tenant text, topic text, event_time timestamptz, eligible boolean, metadata text)
LANGUAGE plpgsql
SECURITY DEFINER
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET lock_timeout = '2s'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _id text;
    _sent record;
    _found boolean;
BEGIN
    -- A restore ends first, and what it has brought back is found; or it finds what is noted here.
    LOCK TABLE projections.erased_messages IN ROW EXCLUSIVE MODE;
    FOREACH _id IN ARRAY p_event_ids LOOP
        CONTINUE WHEN _id !~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$';
        _found := FALSE;
        FOR _sent IN
            SELECT
                f.source_id, f.seq_nr, f.db_timestamp, f.event_type,
                CASE
                    WHEN f.entity_type = 'webhook-message' AND json_typeof(f.metadata::json) = 'object'
                        THEN f.metadata::json ->> 'tenant'
                END AS tenant,
                f.metadata::json AS metadata
            FROM projections.find_event_v1(_id::uuid) AS f
        LOOP
            _found := TRUE;
            CONTINUE WHEN _sent.tenant IS NULL OR _sent.tenant <> p_tenant;
            UPDATE projections.events AS e SET payload = 'null'
            WHERE e.source_id = _sent.source_id AND e.seq_nr = _sent.seq_nr AND e.db_timestamp = _sent.db_timestamp;
            INSERT INTO projections.erased_messages (event_id, tenant) VALUES (_id::uuid, _sent.tenant) ON CONFLICT DO NOTHING;
            RETURN QUERY SELECT
                lower(_id), _sent.tenant, _sent.event_type, _sent.db_timestamp,
                coalesce((_sent.metadata ->> 'eligible_for_retry')::boolean, TRUE), coalesce(_sent.metadata ->> 'labels', '{}');
        END LOOP;
        IF NOT _found THEN
            INSERT INTO projections.erased_messages (event_id, tenant) VALUES (_id::uuid, coalesce(p_tenant, '')) ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
END;
$$;
