-- Refuses names of dimensions that there are not. PJ096.
CREATE OR REPLACE FUNCTION projections.log_dimensions_v1(p_names text[], p_known text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT p_names <@ p_known THEN
        RAISE EXCEPTION 'there is no dimension %',
            (SELECT quote_literal(n.name) FROM unnest(p_names) AS n (name) WHERE n.name <> ALL (p_known) LIMIT 1)
        USING ERRCODE = 'PJ096', HINT = 'There are ' || array_to_string(p_known, ', ') || '.';
    END IF;
END;
$$;
