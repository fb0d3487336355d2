-- Removes a schedule; what it has sent goes on. A tenant of NULL is any.
-- Raises PJ095, and PJ099 when it has another version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._remove_schedule_v1(p_tenant text, p_schedule_id text, p_version integer DEFAULT NULL)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM projections._lock_schedule_v1(p_tenant, p_schedule_id, p_version);
    DELETE FROM projections.webhook_schedules AS s WHERE s.schedule_id = p_schedule_id;
END;
$$;
