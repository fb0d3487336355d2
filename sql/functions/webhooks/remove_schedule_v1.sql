-- Removes a schedule; what it has sent goes on. A tenant of NULL is any. Raises PJ095.
CREATE OR REPLACE FUNCTION projections.remove_schedule_v1(p_tenant text, p_schedule_id text)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM projections.webhook_schedules AS s
    WHERE s.schedule_id = p_schedule_id AND (p_tenant IS NULL OR s.tenant = p_tenant);
    IF NOT FOUND THEN
        RAISE EXCEPTION 'there is no schedule %', quote_literal(p_schedule_id) USING ERRCODE = 'PJ095';
    END IF;
END;
$$;
