-- A time before which nothing is stamped that is not committed yet. Where the start of a writer is not to be seen, for it is
-- another role's or a prepared transaction, that is where matching stands.
CREATE OR REPLACE FUNCTION projections._in_flight_since_v1()
RETURNS timestamptz
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT least(clock_timestamp(), min(coalesce(w.started_at, m.horizon, '1970-01-01T00:00:00Z'))) - interval '1 second'
    FROM projections.writers_in_flight_v1() AS w
    CROSS JOIN (
        SELECT min(r.horizon) AS horizon
        FROM projections.projections AS p INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
        WHERE p.name = 'matching'
    ) AS m
$$;
