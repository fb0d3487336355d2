-- Whether the database is still the one that a worker has looked at: of the same generation (NULL where it has seen none),
-- and with its last heartbeat that had an answer.
CREATE OR REPLACE FUNCTION projections.same_life_v1(
    p_owner text, p_answered bigint, p_timeline integer, p_started_at timestamptz
)
RETURNS boolean
LANGUAGE sql
VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT
        (
            p_answered = 0
            OR EXISTS (SELECT FROM projections.workers AS w WHERE w.owner = p_owner AND w.beats >= p_answered)
        )
        AND (
            p_timeline IS NULL
            OR EXISTS (
                SELECT FROM projections.generation_v1() AS g WHERE g.timeline = p_timeline AND g.started_at = p_started_at
            )
        )
$$;
