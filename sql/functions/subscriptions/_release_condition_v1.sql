-- Has a condition asked again: about what it failed on, then about what came while it was stopped, in the order of the events,
-- then about what comes. Returns whether it was stopped or had failed on anything. Raises PJ080 where it was stopped and would be
-- refused today.
CREATE OR REPLACE FUNCTION projections._release_condition_v1(p_condition_id integer)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _released boolean;
BEGIN
    UPDATE projections.conditions AS c
    SET quarantined_at = NULL, error = NULL, failures = 0, of_types = projections._compile_condition_v1(c.condition_id, c.sql)
    WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NOT NULL;
    _released := FOUND;
    UPDATE projections.unanswered AS u SET due = TRUE WHERE u.condition_id = p_condition_id AND NOT u.due;
    RETURN _released OR FOUND;
END;
$$;
