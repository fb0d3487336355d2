-- The ids of the events ahead that were for one of some endpoints, where there are no more than p_most; NULL where there are more.
CREATE OR REPLACE FUNCTION projections._log_few_events_v1(p_endpoint_ids text[], p_walk text, p_most integer)
RETURNS text[]
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_indexscan = off
SET enable_bitmapscan = on
AS $$
DECLARE
    _ids text[];
BEGIN
    EXECUTE format(
        'SELECT coalesce(array_agg(f.event_id), ''{}'') FROM (SELECT r.event_id FROM projections.webhook_events AS r '
        'WHERE %s LIMIT %s) AS f', concat_ws(' AND ', format('r.endpoint_ids && %L::text[]', p_endpoint_ids), p_walk), p_most + 1
    ) INTO _ids;
    RETURN CASE WHEN cardinality(_ids) <= p_most THEN _ids END;
END;
$$;
