-- The condition that a column has one of these values, NULL where all will do: one value is compared as such, for then an
-- index that has the column before the time keeps the order of time.
CREATE OR REPLACE FUNCTION projections._log_any_of_v1(p_column text, p_values text[])
RETURNS text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE
        WHEN cardinality(p_values) = 1 THEN format('%s = %L::text', p_column, p_values[1])
        WHEN p_values IS NOT NULL THEN format('%s = ANY (%L::text[])', p_column, p_values)
    END
$$;
