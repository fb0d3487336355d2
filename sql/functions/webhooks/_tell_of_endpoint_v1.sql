-- Says in the journal the state of an endpoint: an event of the source 'webhook-endpoint/ID'. With the rights of the schema's
-- owner: who delivers appends nothing else.
CREATE OR REPLACE FUNCTION projections._tell_of_endpoint_v1(p_endpoint_id text, p_tenant text, p_event_type text, p_facts json)
RETURNS void
LANGUAGE sql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT FROM projections.append_event_v1(
        'webhook-endpoint/' || p_endpoint_id, 'webhook-endpoint', p_event_type,
        (jsonb_build_object('tenant', p_tenant, 'endpoint_id', p_endpoint_id) || p_facts::jsonb)::json
    )
$$;
