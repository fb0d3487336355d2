-- Writes events to the delivery log, in the caller's transaction; returns how many are new. The first of an id stays, whatever came
-- later with it and from whom. The endpoints of each are a JSON array of strings, its metadata a JSON object or NULL, its data JSON
-- as written. Ids are locked in their order, so that two of these do not wait for each other.
CREATE OR REPLACE FUNCTION projections._log_events_v1(
    p_event_ids text[], p_tenants text[], p_topics text[], p_times timestamptz[], p_eligible boolean[],
    p_endpoint_ids text[], p_metadata text[], p_data text[], p_order_keys text[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    WITH given AS (
        SELECT DISTINCT ON (e.event_id COLLATE "C") e.*
        FROM unnest(p_event_ids, p_tenants, p_topics, p_times, p_eligible, p_endpoint_ids, p_metadata, p_data, p_order_keys)
        WITH ORDINALITY AS e (event_id, tenant, topic, event_time, eligible, endpoint_ids, metadata, data, order_key, place)
        ORDER BY e.event_id COLLATE "C", e.place
    ), added AS (
        INSERT INTO projections.webhook_log_ids (id, kind, row_time)
        SELECT g.event_id, 'event', g.event_time FROM given AS g ORDER BY g.event_id COLLATE "C"
        ON CONFLICT (id, kind) DO NOTHING
        RETURNING id
    ), written AS (
        INSERT INTO projections.webhook_events (
            event_id, tenant, topic, event_time, eligible_for_retry, endpoint_ids, metadata, data, order_key
        )
        SELECT
            g.event_id, g.tenant, g.topic, g.event_time, g.eligible,
            ARRAY(SELECT jsonb_array_elements_text(g.endpoint_ids::jsonb)), coalesce(g.metadata::jsonb, '{}'), g.data,
            nullif(g.order_key, g.event_id)
        FROM given AS g
        INNER JOIN added AS a ON g.event_id = a.id
        RETURNING 1
    )
    SELECT count(*) FROM written
$$;
