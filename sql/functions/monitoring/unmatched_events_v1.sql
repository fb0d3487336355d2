-- Events that nobody has matched yet, by entity type and slice, of those that some subscription of a reliable group may be for:
-- what the matching of the type has not handled, and of a type that was never matched, all since the first such subscription.
CREATE OR REPLACE FUNCTION projections.unmatched_events_v1()
RETURNS TABLE (entity_type text, slice smallint, oldest timestamptz, events bigint)
LANGUAGE plpgsql
-- All statements see the same snapshot: the caller's.
STABLE
SET search_path = pg_catalog, pg_temp
-- Planned as slice_lag_v1.
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    _since CONSTANT timestamptz := (
        SELECT min(s.since) FROM projections.subscriptions AS s
        INNER JOIN projections.subscription_groups AS g ON s.group_id = g.group_id WHERE g.reliable
    );
    _matching CONSTANT integer[] := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p WHERE p.name = 'matching/' || p.entity_types[1]
    );
    _never CONSTANT text[] := ARRAY(
        SELECT t.name FROM projections.entity_types_v1() AS t (name)
        WHERE NOT EXISTS (SELECT FROM projections.projections AS p WHERE p.name = 'matching/' || t.name)
    );
BEGIN
    IF _since IS NULL THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT p.entity_types[1], l.slice, l.oldest_unhandled, l.backlog
    FROM projections.slice_lag_v1(_matching) AS l
    INNER JOIN projections.projections AS p ON l.projection_id = p.projection_id
    WHERE l.backlog > 0;
    IF cardinality(_never) > 0 THEN
        RETURN QUERY
        SELECT e.entity_type, e.slice, min(e.db_timestamp), count(*)
        FROM projections.events AS e
        WHERE e.entity_type = ANY (_never) AND e.db_timestamp >= _since
        GROUP BY e.entity_type, e.slice;
    END IF;
END;
$$;
