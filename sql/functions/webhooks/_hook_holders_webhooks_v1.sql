-- Which times of the delivery log deliveries still need that are not finished.
CREATE OR REPLACE FUNCTION projections._hook_holders_webhooks_v1()
RETURNS TABLE (table_name text, kind text, holder text, since timestamptz, until timestamptz, reason text)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET timezone = 'UTC'
AS $$
#variable_conflict use_column
DECLARE
    -- What retention lets go of the log of webhooks, or soon will: older deliveries are few, whatever is delivered every day.
    _deliveries_before timestamptz := (
        SELECT clock_timestamp() - s.retention + interval '1 hour' FROM projections.partition_settings AS s
        WHERE s.table_name = 'webhook_events'
    );
BEGIN
    RETURN QUERY
    -- Its payload is there alone until a delivery is finished. Dead letters have a copy; who fans out reads the journal.
    SELECT 'webhook_events', 'delivery', '', min(d.event_time), max(d.event_time), format('%s deliveries are not finished', count(*))
    FROM projections.webhook_deliveries AS d
    WHERE d.event_time < _deliveries_before AND d.state IN ('waiting', 'pending', 'leased')
    GROUP BY date_trunc('day', d.event_time);
END;
$$;
