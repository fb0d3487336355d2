-- Whether the database is still the one that a worker has looked at: of the same generation (NULL where it has seen none),
-- and with its last heartbeat that had an answer.
CREATE OR REPLACE FUNCTION projections._same_generation_v1(
    p_owner text, p_answered bigint, p_timeline integer, p_started_at timestamptz
)
RETURNS boolean
LANGUAGE plpgsql
VOLATILE -- generation_v1 says why not in SQL
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
AS $$
BEGIN
    RETURN
        (
            p_answered = 0
            OR EXISTS (SELECT FROM projections.workers AS w WHERE w.owner = p_owner AND w.beats >= p_answered)
        )
        AND (
            p_timeline IS NULL
            OR (p_timeline = projections.timeline_v1() AND p_started_at = pg_postmaster_start_time())
        );
END;
$$;
