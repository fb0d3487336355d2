-- The subscriptions that catch up with the past, with their conditions; not those whose condition is stopped, or waits for events
-- itself. Each has a place in the history of each of its entity types from here on. Whoever matches calls it.
-- Of messages that were published before the schema's version 3 nobody knows whom they were for: they are no history.
CREATE OR REPLACE FUNCTION projections.begin_history_v1()
RETURNS TABLE (subscription_id bigint, condition_id integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _apart CONSTANT integer[] := ARRAY(SELECT projections.conditions_apart_v1());
BEGIN
    INSERT INTO projections.subscription_history (subscription_id, entity_type, db_timestamp)
    SELECT s.subscription_id, t.entity_type, greatest(s.starts_at, CASE WHEN t.entity_type = 'published' THEN (
        SELECT v.installed_at FROM projections.schema_versions AS v
        WHERE v.version = 3 AND v.installed_at > (SELECT min(o.installed_at) FROM projections.schema_versions AS o)
    ) END)
    FROM projections.subscriptions AS s
    CROSS JOIN projections.entity_types_v1() AS t (entity_type)
    WHERE s.starts_at IS NOT NULL AND (s.entity_types IS NULL OR t.entity_type = ANY (s.entity_types))
    AND NOT EXISTS (
        SELECT FROM projections.subscription_history AS h
        WHERE h.subscription_id = s.subscription_id AND h.entity_type = t.entity_type
    )
    ORDER BY s.subscription_id, t.entity_type
    ON CONFLICT DO NOTHING;
    RETURN QUERY
    SELECT s.subscription_id, s.condition_id FROM projections.subscriptions AS s
    WHERE s.starts_at IS NOT NULL AND (s.condition_id IS NULL OR s.condition_id <> ALL (_apart))
    ORDER BY s.subscription_id;
END;
$$;
