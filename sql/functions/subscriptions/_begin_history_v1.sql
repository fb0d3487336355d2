-- The subscriptions that catch up with the past, with their conditions; not those whose condition is stopped, or waits for events
-- itself. Each has a place in the history of its entity types from here on. Whoever matches calls it.
CREATE OR REPLACE FUNCTION projections._begin_history_v1()
RETURNS TABLE (subscription_id bigint, condition_id integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
#variable_conflict use_column
DECLARE
    _apart CONSTANT integer[] := ARRAY(SELECT projections._conditions_apart_v1());
BEGIN
    INSERT INTO projections.subscription_history (subscription_id, db_timestamp)
    SELECT s.subscription_id, s.starts_at FROM projections.subscriptions AS s
    WHERE s.starts_at IS NOT NULL
    AND NOT EXISTS (SELECT FROM projections.subscription_history AS h WHERE h.subscription_id = s.subscription_id)
    ORDER BY s.subscription_id
    ON CONFLICT DO NOTHING;
    RETURN QUERY
    SELECT s.subscription_id, s.condition_id FROM projections.subscriptions AS s
    WHERE s.starts_at IS NOT NULL AND (s.condition_id IS NULL OR s.condition_id <> ALL (_apart))
    ORDER BY s.subscription_id;
END;
$$;
