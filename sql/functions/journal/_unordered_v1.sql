-- The metadata of a message, as JSON, without the key of its order: that says when it is delivered, not what it says.
CREATE OR REPLACE FUNCTION projections._unordered_v1(p_metadata text)
RETURNS text
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN CASE jsonb_typeof(p_metadata::jsonb) WHEN 'object' THEN p_metadata::jsonb - 'order_key' ELSE p_metadata::jsonb END;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN RETURN p_metadata;
END;
$$;
