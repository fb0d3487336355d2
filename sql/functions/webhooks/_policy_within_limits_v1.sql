-- The policy of an endpoint as it is followed: what it asks for, held to what webhook_limits says. A schedule that is none, as who
-- stores endpoints in SQL may write it, has no retries.
CREATE OR REPLACE FUNCTION projections._policy_within_limits_v1(p_policy jsonb)
RETURNS jsonb
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
-- Its plan is kept for a session, which that of a function in SQL is not.
BEGIN
    RETURN (
        SELECT p_policy || jsonb_build_object(
            'timeout', least(greatest((p_policy ->> 'timeout')::numeric, l.least_timeout), l.most_timeout),
            'breaker_failures',
            least(greatest((p_policy ->> 'breaker_failures')::numeric, l.least_failures), l.most_failures),
            'breaker_pause', p_policy -> 'breaker_pause' || jsonb_build_object(
                'first', least(greatest((p_policy #>> '{breaker_pause,first}')::numeric, l.least_break), l.most_break),
                'longest', least(greatest((p_policy #>> '{breaker_pause,longest}')::numeric, l.least_break), l.most_break)
            ),
            'schedule', coalesce((
                SELECT jsonb_agg(least(greatest(s.pause::numeric, l.least_pause), l.most_pause) ORDER BY s.place)
                FROM jsonb_array_elements_text(
                    CASE jsonb_typeof(p_policy -> 'schedule') WHEN 'array' THEN p_policy -> 'schedule' END
                ) WITH ORDINALITY AS s (pause, place)
                WHERE l.most_attempts IS NULL OR s.place < l.most_attempts
            ), '[]')
        )
        FROM (
            SELECT
                max(l.least) FILTER (WHERE l.name = 'timeout') AS least_timeout,
                max(l.most) FILTER (WHERE l.name = 'timeout') AS most_timeout,
                max(l.least) FILTER (WHERE l.name = 'breaker_failures') AS least_failures,
                max(l.most) FILTER (WHERE l.name = 'breaker_failures') AS most_failures,
                max(l.least) FILTER (WHERE l.name = 'breaker_pause') AS least_break,
                max(l.most) FILTER (WHERE l.name = 'breaker_pause') AS most_break,
                max(l.least) FILTER (WHERE l.name = 'pause') AS least_pause,
                max(l.most) FILTER (WHERE l.name = 'pause') AS most_pause,
                max(l.most) FILTER (WHERE l.name = 'attempts') AS most_attempts
            FROM projections.webhook_limits AS l
        ) AS l
    );
END;
$$;
