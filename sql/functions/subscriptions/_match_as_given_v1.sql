-- Writes the matches of events that need no look at any subscription alone: the arrays of subscriptions as they were given.
-- Where several are for one event and group, each set of them is put together once. _match_events_v1 calls it. In p_answered are
-- conditions, and in p_places, alongside them, the places of events that these say TRUE of.
CREATE OR REPLACE FUNCTION projections._match_as_given_v1(
    p_events projections.events_to_match[], p_interests projections.interests[], p_answered integer[], p_places bigint[]
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
-- The planner takes arrays to be short, and would go through one for each element of another.
SET enable_nestloop = off
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _count bigint;
BEGIN
    IF cardinality(p_places) = 0 THEN
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT w.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, w.subscription_ids
            FROM unnest(p_events) WITH ORDINALITY AS e
            INNER JOIN unnest(p_interests) AS w ON e.topic = w.topic AND e.entity_type = w.entity_type
            WHERE w.condition_id IS NULL
            ORDER BY e.ordinality, w.group_id
        ) AS m;
    ELSE
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(p_events) WITH ORDINALITY
        ), wanted AS MATERIALIZED (
            SELECT * FROM unnest(p_interests) WITH ORDINALITY
        ), answers AS MATERIALIZED (
            SELECT a.condition_id, a.place, e.topic, e.entity_type
            FROM unnest(p_answered, p_places) AS a (condition_id, place) INNER JOIN given AS e ON a.place = e.ordinality
        ), found AS (
            SELECT f.place, f.group_id, array_agg(f.number ORDER BY f.number) AS numbers
            FROM (
                SELECT e.ordinality AS place, w.group_id, w.ordinality AS number
                FROM given AS e INNER JOIN wanted AS w ON e.topic = w.topic AND e.entity_type = w.entity_type
                WHERE w.condition_id IS NULL
                UNION ALL
                SELECT a.place, w.group_id, w.ordinality
                FROM answers AS a
                INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND a.topic = w.topic AND a.entity_type = w.entity_type
                UNION ALL
                SELECT a.place, w.group_id, w.ordinality
                FROM answers AS a INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND a.entity_type = w.entity_type
                WHERE w.topic IS NULL
            ) AS f
            GROUP BY f.place, f.group_id
        ), sets AS (
            SELECT n.numbers, array_agg(u.subscription_id ORDER BY u.subscription_id) AS subscription_ids
            FROM (SELECT DISTINCT f.numbers FROM found AS f) AS n
            CROSS JOIN LATERAL unnest(n.numbers) AS m (number)
            INNER JOIN wanted AS w ON m.number = w.ordinality
            CROSS JOIN LATERAL unnest(w.subscription_ids) AS u (subscription_id)
            GROUP BY n.numbers
        )
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT f.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, s.subscription_ids
            FROM found AS f
            INNER JOIN given AS e ON f.place = e.ordinality
            INNER JOIN sets AS s ON f.numbers = s.numbers
            ORDER BY e.ordinality, f.group_id
        ) AS m;
    END IF;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
