-- Of some projections, those that workers run, whether their ranges are to be assigned again: some to nobody who is alive,
-- or not evenly.
CREATE OR REPLACE FUNCTION projections._uneven_v1(p_projection_ids integer[])
RETURNS TABLE (projection_id integer, uneven boolean)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT m.projection_id, max(m.ranges) - min(m.ranges) > 1 OR sum(m.ranges) < min(m.all_ranges)
    FROM (
        SELECT k.projection_id, coalesce(c.ranges, 0) AS ranges, t.all_ranges
        FROM projections.workers AS w
        CROSS JOIN unnest(w.projection_ids) AS k (projection_id)
        INNER JOIN (
            SELECT r.projection_id, count(*) AS all_ranges
            FROM projections.projection_ranges AS r WHERE r.projection_id = ANY(p_projection_ids) GROUP BY r.projection_id
        ) AS t ON k.projection_id = t.projection_id
        LEFT JOIN (
            SELECT r.projection_id, r.assigned_to, count(*) AS ranges
            FROM projections.projection_ranges AS r WHERE r.projection_id = ANY(p_projection_ids)
            GROUP BY r.projection_id, r.assigned_to
        ) AS c ON k.projection_id = c.projection_id AND w.owner = c.assigned_to
        WHERE w.lease_until > clock_timestamp() AND NOT w.leaving
    ) AS m
    GROUP BY m.projection_id
$$;
