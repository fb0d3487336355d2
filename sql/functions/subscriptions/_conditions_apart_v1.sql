-- The conditions that are not asked about events as they are matched: those that were stopped, and those that have events to
-- catch up on first. What comes for them is kept, behind what waits already.
CREATE OR REPLACE FUNCTION projections._conditions_apart_v1()
RETURNS SETOF integer
LANGUAGE plpgsql
STABLE -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    -- From one condition to the next: each may have millions of rows.
    RETURN QUERY WITH RECURSIVE behind (condition_id) AS (
        (SELECT u.condition_id FROM projections.unanswered AS u WHERE u.due ORDER BY u.condition_id LIMIT 1)
        UNION ALL
        SELECT n.condition_id FROM behind AS b CROSS JOIN LATERAL (
            SELECT u.condition_id FROM projections.unanswered AS u
            WHERE u.due AND u.condition_id > b.condition_id ORDER BY u.condition_id LIMIT 1
        ) AS n
    )
    SELECT b.condition_id FROM behind AS b
    UNION
    SELECT c.condition_id FROM projections.conditions AS c WHERE c.quarantined_at IS NOT NULL
    OR EXISTS (
        SELECT FROM projections.unasked AS u WHERE u.page_id >= c.unasked_from AND c.condition_id = ANY (u.condition_ids)
    );
END;
$$;
