-- Lets a condition that was set apart be asked again; returns whether it was. What came meanwhile it has missed.
CREATE OR REPLACE FUNCTION projections.release_condition_v1(p_condition_id integer)
RETURNS boolean
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    WITH released AS (
        UPDATE projections.conditions AS c SET quarantined_at = NULL, error = NULL
        WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NOT NULL RETURNING 1
    )
    SELECT EXISTS (SELECT FROM released)
$$;
