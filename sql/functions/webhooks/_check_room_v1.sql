-- Lets a tenant make one more of its 'endpoints' or 'schedules', if it has fewer than p_at_most; NULL is any number. Until the
-- caller's transaction ends others wait here who make one of the same tenant, so that two at once do not pass it.
--
-- Raises PJ098 where there is no room.
CREATE OR REPLACE FUNCTION projections._check_room_v1(p_what text, p_tenant text, p_at_most integer)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _made bigint;
BEGIN
    IF p_at_most IS NULL THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections'), hashtext(p_what || ' of ' || p_tenant));
    IF p_what = 'endpoints' THEN
        SELECT count(*) INTO _made FROM projections.webhook_endpoints AS e WHERE e.tenant = p_tenant;
    ELSE
        SELECT count(*) INTO _made FROM projections.webhook_schedules AS s WHERE s.tenant = p_tenant;
    END IF;
    IF _made >= p_at_most THEN
        RAISE EXCEPTION 'a tenant has at most % %; an administrator can make more', p_at_most, p_what USING ERRCODE = 'PJ098';
    END IF;
END;
$$;
