-- Forgets deliveries that are done, dropped, expired or erased, of events older than the log keeps, a few at a time; returns how many. Only
-- what every fan-out has read is forgotten: should they read it again, what is older than this is passed over, not sent again.
-- The log keeps events of deliveries that are not finished.
--
-- What is forgotten was announced by an earlier call: a fan-out at work meanwhile, which has read the announcement before that,
-- would not find the delivery and make it again. Call it every minute or so: the first call of all forgets nothing.
CREATE OR REPLACE FUNCTION projections._forget_deliveries_v1(p_limit integer DEFAULT 5000)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _announced timestamptz;
    _before timestamptz;
    _forgotten integer;
BEGIN
    SELECT f.before, least(clock_timestamp() - s.retention, (
        SELECT min(r.horizon) FROM projections.projections AS p
        INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
        WHERE p.name LIKE 'webhooks/%'
    ), (
        -- What a source waits at that is parked, and all behind it, is read when somebody decides.
        SELECT min(coalesce((
            SELECT min(e.db_timestamp) FROM projections.events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr
            AND e.db_timestamp BETWEEN coalesce(o.db_timestamp, '-infinity') AND k.parked_at
        ), o.db_timestamp, '-infinity'))
        FROM projections.parked_sources AS k
        INNER JOIN projections.projections AS p ON k.projection_id = p.projection_id
        LEFT JOIN projections.source_offsets AS o ON k.projection_id = o.projection_id AND k.source_id = o.source_id
        WHERE p.name LIKE 'webhooks/%'
    )) INTO _announced, _before
    FROM projections.partition_settings AS s CROSS JOIN projections.webhook_forgotten AS f
    WHERE s.table_name = 'webhook_events' AND s.retention IS NOT NULL;
    IF _before IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM projections.webhook_deliveries AS d
    WHERE d.delivery_id = ANY (ARRAY(
        SELECT o.delivery_id FROM projections.webhook_deliveries AS o
        WHERE o.event_time < _announced AND o.state IN ('done', 'dropped', 'expired', 'erased')
        ORDER BY o.event_time LIMIT p_limit FOR UPDATE SKIP LOCKED
    ));
    GET DIAGNOSTICS _forgotten = ROW_COUNT;
    -- While there is more of what was announced, no more is.
    IF _forgotten < p_limit THEN
        UPDATE projections.webhook_forgotten AS f SET before = _before WHERE f.before < _before;
    END IF;
    RETURN _forgotten;
END;
$$;
