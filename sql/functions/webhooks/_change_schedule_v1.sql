-- Changes a schedule as a JSON object of its columns says; those left out stay. p_next_at is its next tick, NULL for the one
-- that it has. A tenant of NULL is any. Gives the row as it is written.
--
-- Raises PJ095 when the tenant has no such schedule, PJ099 when it has another version than p_version (NULL is any), and what
-- _create_schedule_v1 does.
CREATE OR REPLACE FUNCTION projections._change_schedule_v1(
    p_tenant text, p_schedule_id text, p_changes jsonb, p_next_at timestamptz DEFAULT NULL, p_version integer DEFAULT NULL
)
RETURNS projections.webhook_schedules
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _old projections.webhook_schedules := projections._lock_schedule_v1(p_tenant, p_schedule_id, p_version);
    _new projections.webhook_schedules := jsonb_populate_record(_old, p_changes);
BEGIN
    PERFORM projections._check_schedule_endpoint_v1(_old.tenant, _new.endpoint_id);
    UPDATE projections.webhook_schedules AS s SET
        name = _new.name, cron = _new.cron, timezone = _new.timezone, topic = _new.topic, data = _new.data,
        endpoint_id = _new.endpoint_id, missed = _new.missed, paused = _new.paused, next_at = coalesce(p_next_at, s.next_at),
        held_until = '1970-01-01T00:00:00Z', version = s.version + 1
    WHERE s.schedule_id = p_schedule_id
    RETURNING s.* INTO _new;
    RETURN _new;
END;
$$;
