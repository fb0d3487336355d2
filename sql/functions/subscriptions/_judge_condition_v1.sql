-- Counts events that a condition has failed on, and answered. One that fails on most is stopped: when it has failed on 10 events
-- more than it has answered since the first. Says so to the caller, who may log it, in the setting projections.set_apart.
CREATE OR REPLACE FUNCTION projections._judge_condition_v1(
    p_condition_id integer, p_failed integer, p_answered integer, p_error text DEFAULT NULL
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _failures integer;
BEGIN
    UPDATE projections.conditions AS c SET failures = greatest(0, c.failures + p_failed - p_answered)
    WHERE c.condition_id = p_condition_id RETURNING c.failures INTO _failures;
    IF p_failed > 0 AND _failures >= 10 THEN
        PERFORM projections._quarantine_condition_v1(p_condition_id, p_error);
    END IF;
    IF p_failed > 0 THEN
        PERFORM set_config('projections.set_apart', (
            coalesce(nullif(current_setting('projections.set_apart', TRUE), ''), '[]')::jsonb
            || jsonb_build_object('condition', p_condition_id, 'error', p_error, 'stopped', _failures >= 10)
        )::text, TRUE);
    END IF;
END;
$$;
