-- Forgets deliveries that are done or discarded, of events older than the log keeps, a few at a time; returns how many. Only
-- what every fan-out has read is forgotten: should they read it again, what is older than this is passed over, not sent anew.
-- The log keeps events of deliveries that are not finished.
CREATE OR REPLACE FUNCTION projections.forget_deliveries_v1(p_limit integer DEFAULT 5000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _before timestamptz;
    _forgotten integer;
BEGIN
    SELECT least(clock_timestamp() - s.retention, (
        SELECT min(r.horizon) FROM projections.projections AS p
        INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
        WHERE p.name LIKE 'webhooks/%'
    )) INTO _before
    FROM projections.partition_settings AS s WHERE s.table_name = 'webhook_events' AND s.retention IS NOT NULL;
    IF _before IS NULL THEN
        RETURN 0;
    END IF;
    UPDATE projections.webhook_forgotten AS f SET before = _before WHERE f.before < _before;
    DELETE FROM projections.webhook_deliveries AS d
    WHERE d.delivery_id = ANY (ARRAY(
        SELECT o.delivery_id FROM projections.webhook_deliveries AS o
        WHERE o.event_time < _before AND o.state IN ('done', 'discarded')
        ORDER BY o.event_time LIMIT p_limit FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS _forgotten = ROW_COUNT;
    RETURN _forgotten;
END;
$$;
