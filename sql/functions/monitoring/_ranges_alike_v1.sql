-- Of how many ranges of each projection the same is true, the events that they have handled, and the workers that hold them: of a
-- thousand ranges a few rows. Alive: a worker whose lease runs holds them; failing: they have failed, and were not handled since; parked:
-- they have sources that wait for a decision. Sub-queries that stand alone are hashed, whatever the statistics say.
CREATE OR REPLACE FUNCTION projections._ranges_alike_v1()
RETURNS TABLE (
    projection_id integer, alive boolean, failing boolean, parked boolean, ranges bigint, handled bigint, owners text[]
)
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH alive AS MATERIALIZED (
        SELECT w.owner FROM projections.workers AS w WHERE w.lease_until > clock_timestamp()
    ), parked AS MATERIALIZED (
        SELECT DISTINCT k.projection_id, (
            SELECT max(r.min_slice) FROM projections.projection_ranges AS r
            WHERE r.projection_id = k.projection_id AND r.min_slice <= k.slice
        ) AS min_slice
        FROM (SELECT DISTINCT p.projection_id, p.slice FROM projections.parked_sources AS p) AS k
    )
    SELECT
        r.projection_id, r.alive, r.failing, r.parked, count(*), sum(r.handled)::bigint,
        coalesce(array_agg(DISTINCT r.owner) FILTER (WHERE r.alive), '{}')
    FROM (
        SELECT
            r.projection_id, r.handled, r.owner, r.failures > 0 AS failing,
            coalesce(r.owner IN (SELECT a.owner FROM alive AS a), FALSE) AS alive,
            (r.projection_id, r.min_slice) IN (SELECT k.projection_id, k.min_slice FROM parked AS k) AS parked
        FROM projections.projection_ranges AS r
    ) AS r
    GROUP BY r.projection_id, r.alive, r.failing, r.parked
$$;
