-- The newest event after a time, of each entity type, and where that is NULL of all of them; NULL where there is none.
-- The smallest of the times is a value when this is planned: partitions that end before it are not even opened.
CREATE OR REPLACE FUNCTION projections._newest_events_v1(p_entity_types text[], p_after timestamptz[])
RETURNS timestamptz[]
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _first CONSTANT timestamptz := (SELECT min(t.after) FROM unnest(p_after) AS t (after));
    _all CONSTANT text[] := CASE
        WHEN array_position(p_entity_types, NULL) IS NOT NULL THEN ARRAY(SELECT projections._entity_types_v1())
    END;
BEGIN
    RETURN ARRAY(
        SELECT (
            SELECT max(newest.db_timestamp)
            FROM unnest(CASE WHEN t.entity_type IS NULL THEN _all ELSE ARRAY[t.entity_type] END) AS k (entity_type)
            CROSS JOIN LATERAL (
                SELECT e.db_timestamp FROM projections.events AS e
                WHERE e.entity_type = k.entity_type AND e.db_timestamp > _first AND e.db_timestamp > t.after
                ORDER BY e.entity_type DESC, e.db_timestamp DESC LIMIT 1
            ) AS newest
        )
        FROM unnest(p_entity_types, p_after) WITH ORDINALITY AS t (entity_type, after, place)
        ORDER BY t.place
    );
END;
$$;
