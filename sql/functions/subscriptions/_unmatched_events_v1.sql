-- Events that nobody has matched yet, by entity type and slice, of those that some subscription of a reliable group may be for:
-- what matching has not handled, and where it was never begun, all since the first such subscription.
CREATE OR REPLACE FUNCTION projections._unmatched_events_v1()
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
    _matching CONSTANT integer[] := ARRAY(SELECT p.projection_id FROM projections.projections AS p WHERE p.name = 'matching');
BEGIN
    IF _since IS NULL THEN
        RETURN;
    ELSIF cardinality(_matching) > 0 THEN
        RETURN QUERY
        SELECT l.entity_type, l.slice, l.oldest_unhandled, l.backlog FROM projections.slice_lag_v1(_matching, p_by_type => TRUE) AS l
        WHERE l.backlog > 0;
    ELSE
        RETURN QUERY
        SELECT e.entity_type, e.slice, min(e.db_timestamp), count(*)
        FROM projections._entity_types_v1() AS t (entity_type)
        INNER JOIN projections.events AS e ON t.entity_type = e.entity_type
        WHERE e.db_timestamp >= _since
        GROUP BY e.entity_type, e.slice;
    END IF;
END;
$$;
