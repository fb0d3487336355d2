-- Makes an endpoint, for events from now on. p_settings is as for _change_endpoint_v1, url and policy are a must; p_secret is
-- what deliveries are signed with, as the sender's cipher has made it. Gives the row as it is written.
--
-- Raises PJ090 where it is invalid, and PJ098 where the tenant has p_at_most already.
CREATE OR REPLACE FUNCTION projections._create_endpoint_v1(
    p_endpoint_id text, p_tenant text, p_settings jsonb, p_secret text, p_at_most integer DEFAULT NULL
)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _made projections.webhook_endpoints;
BEGIN
    PERFORM projections._check_room_v1('endpoints', p_tenant, p_at_most);
    -- Who erases has locked the circuits of all endpoints that there are, in their order.
    PERFORM pg_advisory_xact_lock_shared(hashtext('slice-projections'), hashtext('erasing of ' || p_tenant));
    BEGIN
        INSERT INTO projections.webhook_endpoints (endpoint_id, tenant, url, policy)
        VALUES (p_endpoint_id, p_tenant, p_settings ->> 'url', p_settings -> 'policy');
    EXCEPTION
        WHEN check_violation OR not_null_violation OR unique_violation THEN
            RAISE EXCEPTION 'an endpoint is invalid: %', SQLERRM USING ERRCODE = 'PJ090';
    END;
    _made := projections._change_endpoint_v1(p_tenant, p_endpoint_id, p_settings);
    INSERT INTO projections.webhook_circuits (endpoint_id) VALUES (p_endpoint_id);
    INSERT INTO projections.webhook_secrets (endpoint_id, secret) VALUES (p_endpoint_id, p_secret);
    RETURN _made;
END;
$$;
