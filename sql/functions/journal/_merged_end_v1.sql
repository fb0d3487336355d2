-- Up to which time a page of several entity types looks: an hour from now, unless there are later events, of a clock that has gone
-- back. Its query is planned each time, and the partitions that are made in advance are many for one that has nothing to find there.
CREATE OR REPLACE FUNCTION projections._merged_end_v1(p_entity_types text[], p_from timestamptz, p_until timestamptz)
RETURNS timestamptz
LANGUAGE plpgsql
STABLE
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _end CONSTANT timestamptz := least(p_until, greatest(p_from, now()) + interval '1 hour');
BEGIN
    RETURN CASE WHEN _end < p_until AND EXISTS (
        SELECT FROM unnest(p_entity_types) AS t (entity_type)
        CROSS JOIN LATERAL (
            SELECT FROM projections.events AS e
            WHERE e.entity_type = t.entity_type AND e.db_timestamp > _end AND e.db_timestamp <= p_until LIMIT 1
        ) AS later
    ) THEN p_until ELSE _end END;
END;
$$;
