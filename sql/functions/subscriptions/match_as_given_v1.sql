-- Writes the matches of events that need no look at any subscription alone: the arrays of subscriptions as they were given.
-- Where several are for one event and group, each set of them is put together once. match_events_v1 calls it. In p_answered are
-- conditions, and in p_places events that these say TRUE of.
CREATE OR REPLACE FUNCTION projections.match_as_given_v1(
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_condition_ids integer[],
    p_wanted_topics text[],
    p_wanted_groups integer[],
    p_wanted_ids text[],
    p_answered integer[],
    p_places bigint[]
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
            FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
            INNER JOIN (
                SELECT w.topic, w.group_id, w.subscription_ids::bigint[] AS subscription_ids
                FROM unnest(p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids)
                AS w (condition_id, topic, group_id, subscription_ids)
                WHERE w.condition_id IS NULL
            ) AS w ON e.topic = w.topic
            ORDER BY e.place, w.group_id
        ) AS m;
    ELSE
        WITH given AS MATERIALIZED (
            SELECT * FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
            WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
        ), wanted AS MATERIALIZED (
            SELECT w.condition_id, w.topic, w.group_id, w.subscription_ids::bigint[] AS subscription_ids, w.number
            FROM unnest(p_condition_ids, p_wanted_topics, p_wanted_groups, p_wanted_ids)
            WITH ORDINALITY AS w (condition_id, topic, group_id, subscription_ids, number)
        ), answers AS MATERIALIZED (
            SELECT a.condition_id, a.place, e.topic
            FROM unnest(p_answered, p_places) AS a (condition_id, place) INNER JOIN given AS e ON a.place = e.place
        ), found AS (
            SELECT f.place, f.group_id, array_agg(f.number ORDER BY f.number) AS numbers
            FROM (
                SELECT e.place, w.group_id, w.number FROM given AS e INNER JOIN wanted AS w ON e.topic = w.topic
                WHERE w.condition_id IS NULL
                UNION ALL
                SELECT a.place, w.group_id, w.number
                FROM answers AS a INNER JOIN wanted AS w ON a.condition_id = w.condition_id AND a.topic = w.topic
                UNION ALL
                SELECT a.place, w.group_id, w.number FROM answers AS a INNER JOIN wanted AS w ON a.condition_id = w.condition_id
                WHERE w.topic IS NULL
            ) AS f
            GROUP BY f.place, f.group_id
        ), sets AS (
            SELECT n.numbers, array_agg(u.subscription_id ORDER BY u.subscription_id) AS subscription_ids
            FROM (SELECT DISTINCT f.numbers FROM found AS f) AS n
            CROSS JOIN LATERAL unnest(n.numbers) AS m (number)
            INNER JOIN wanted AS w ON m.number = w.number
            CROSS JOIN LATERAL unnest(w.subscription_ids) AS u (subscription_id)
            GROUP BY n.numbers
        )
        INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
        SELECT nextval('projections.match_ids'), m.* FROM (
            SELECT f.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, s.subscription_ids
            FROM found AS f
            INNER JOIN given AS e ON f.place = e.place
            INNER JOIN sets AS s ON f.numbers = s.numbers
            ORDER BY e.place, f.group_id
        ) AS m;
    END IF;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
