-- Erases the payloads of messages, by their ids, and what endpoints answered to them; their records, times and outcomes stay.
-- What was to be delivered of them is 'erased', and what waits for it in an order goes. An attempt on its way has the payload: it
-- ends as 'done', or as 'erased', and of its answer nothing is kept. A message that fan-out has not read yet has a record from
-- now on, which fan-out finds. A tenant of NULL is any. Returns how many messages there are, erased by this call or before, how
-- many attempts at them are on their way, and of how many the log alone was found: the journal has no event of that id any more.
--
-- Rows are found by their ids, whatever the statistics say of the tenant: as IS TRUE no index serves for it.
--
-- The circuits of the tenants are held: who claims, finishes or decides does so before it, or after. Circuits before ids of the
-- log, as fan-out takes them.
CREATE OR REPLACE FUNCTION projections._erase_messages_v1(
    p_tenant text, p_event_ids text[], OUT erased integer, OUT in_flight integer, OUT gone integer
)
RETURNS record
LANGUAGE plpgsql
SET plan_cache_mode = 'force_custom_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _wanted text[] := ARRAY(SELECT DISTINCT i.id COLLATE "C" FROM unnest(p_event_ids) AS i (id) ORDER BY i.id COLLATE "C");
    _tenants text[] := ARRAY[p_tenant];
    _ids text[];
    _deliveries bigint[];
    _number integer;
    _logged record;
BEGIN
    IF p_tenant IS NULL THEN
        _tenants := ARRAY(
            SELECT v.tenant FROM unnest(_wanted) AS i (id)
            CROSS JOIN LATERAL (
                SELECT l.row_time FROM projections.webhook_log_ids AS l WHERE l.id = i.id AND l.kind = 'event' LIMIT 1
            ) AS l
            CROSS JOIN LATERAL (
                SELECT v.tenant FROM projections.webhook_events AS v WHERE v.event_time = l.row_time AND v.event_id = i.id LIMIT 1
            ) AS v
            UNION
            SELECT f.metadata::json ->> 'tenant' FROM unnest(_wanted) AS i (id)
            CROSS JOIN LATERAL projections.find_event_v1(
                CASE WHEN i.id ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN i.id::uuid END
            ) AS f
            WHERE f.entity_type = 'webhook-message' AND json_typeof(f.metadata::json) = 'object'
        );
    END IF;
    -- No endpoint is made meanwhile: its circuit would be locked later, after those that follow it.
    PERFORM pg_advisory_xact_lock(hashtext('slice-projections'), hashtext('erasing of ' || t.tenant))
    FROM (SELECT t.tenant FROM unnest(_tenants) AS t (tenant) WHERE t.tenant IS NOT NULL ORDER BY t.tenant COLLATE "C") AS t;
    PERFORM FROM projections.webhook_circuits AS c
    WHERE c.endpoint_id = ANY (ARRAY(SELECT e.endpoint_id FROM projections.webhook_endpoints AS e WHERE e.tenant = ANY (_tenants)))
    ORDER BY c.endpoint_id FOR NO KEY UPDATE;
    -- What is older than all that is kept is never fanned out: it needs no record.
    WITH sent AS MATERIALIZED (SELECT s.* FROM projections._erase_sent_v1(p_tenant, _wanted) AS s)
    SELECT
        (SELECT array_agg(s.event_id) FROM sent AS s),
        (SELECT count(*) FROM (
            SELECT projections._log_events_v1(
                array_agg(s.event_id), array_agg(s.tenant), array_agg(s.topic), array_agg(s.event_time), array_agg(s.eligible),
                array_agg('[]'::text), array_agg(s.metadata), array_agg(NULL::text)
            )
            FROM sent AS s WHERE s.event_time >= (SELECT f.before FROM projections.webhook_forgotten AS f)
            HAVING count(*) > 0
        ) AS l)
    INTO _ids, _number;
    -- A statement of its own: what fan-out has committed while an id was waited for is seen.
    -- One at a time: of all together, a plan made when the table was empty goes through the whole table for each.
    FOR _logged IN
        SELECT i.id, l.row_time FROM unnest(_wanted) AS i (id)
        CROSS JOIN LATERAL (
            SELECT l.row_time FROM projections.webhook_log_ids AS l WHERE l.id = i.id AND l.kind = 'event' LIMIT 1
        ) AS l
    LOOP
        UPDATE projections.webhook_events AS v SET data = NULL, erased_at = coalesce(v.erased_at, _now)
        WHERE v.event_time = _logged.row_time AND v.event_id = _logged.id AND (v.tenant = ANY (_tenants)) IS TRUE;
    END LOOP;
    SELECT coalesce(array_agg(DISTINCT v.event_id), '{}'), array_agg(d.delivery_id) FILTER (WHERE d.delivery_id IS NOT NULL)
    INTO _wanted, _deliveries
    FROM unnest(_wanted) AS i (id)
    CROSS JOIN LATERAL (
        SELECT l.row_time FROM projections.webhook_log_ids AS l WHERE l.id = i.id AND l.kind = 'event' LIMIT 1
    ) AS l
    CROSS JOIN LATERAL (
        SELECT v.event_id, v.endpoint_ids FROM projections.webhook_events AS v
        WHERE v.event_time = l.row_time AND v.event_id = i.id AND v.erased_at IS NOT NULL AND v.tenant = ANY (_tenants) LIMIT 1
    ) AS v
    LEFT JOIN LATERAL unnest(v.endpoint_ids) AS e (id) ON TRUE
    LEFT JOIN LATERAL (
        SELECT d.delivery_id FROM projections.webhook_deliveries AS d
        WHERE d.endpoint_id = e.id AND d.event_id = v.event_id LIMIT 1
    ) AS d ON TRUE;
    PERFORM projections._lock_deliveries_v1(_deliveries);
    UPDATE projections.webhook_deliveries AS d SET
        erased = TRUE, data = NULL, manual = d.manual AND d.state = 'leased',
        state = CASE WHEN d.state IN ('waiting', 'pending', 'dead') THEN 'erased' ELSE d.state END,
        finished_at = CASE WHEN d.state IN ('waiting', 'pending', 'dead') THEN _now ELSE d.finished_at END
    WHERE d.delivery_id = ANY (_deliveries);
    PERFORM projections._follow_on_v1(_deliveries);
    UPDATE projections.webhook_attempts AS a SET response = NULL
    WHERE a.event_id = ANY (_wanted) AND (a.tenant = ANY (_tenants)) IS TRUE AND a.response IS NOT NULL;
    SELECT count(*) FILTER (WHERE d.state = 'leased') INTO in_flight
    FROM projections.webhook_deliveries AS d WHERE d.delivery_id = ANY (_deliveries);
    gone := (
        SELECT count(*) FROM unnest(_wanted) AS i (id)
        WHERE i.id <> ALL (coalesce(_ids, '{}')) AND i.id ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$'
        AND NOT EXISTS (
            SELECT FROM projections.find_event_v1(
                CASE WHEN i.id ~ '^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$' THEN i.id::uuid END
            )
        )
    );
    erased := (SELECT count(*) FROM (SELECT unnest(_wanted) UNION SELECT unnest(_ids)) AS i);
END;
$$;
