-- Drops the function of a condition, which nobody asks any more. Belongs to the role projections_matcher, as the function does.
CREATE OR REPLACE FUNCTION projections._drop_condition_v1(p_condition_id integer)
RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET client_min_messages = warning
AS $$
BEGIN
    EXECUTE format('DROP FUNCTION IF EXISTS projections_conditions.condition_%s', p_condition_id);
END;
$$;
