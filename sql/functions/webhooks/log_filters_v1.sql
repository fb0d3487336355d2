-- The condition that columns of a row of the log have any of the values given for each, as texts; NULL where there are none.
CREATE OR REPLACE FUNCTION projections.log_filters_v1(p_alias text, p_filters jsonb)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(projections.log_any_of_v1(
        CASE
            WHEN f.name IN ('code', 'manual', 'attempt_number') THEN format('coalesce(%I.%I::text, '''')', p_alias, f.name)
            ELSE format('%I.%I', p_alias, f.name)
        END,
        ARRAY(SELECT jsonb_array_elements_text(f.chosen))
    ), ' AND ')
    FROM jsonb_each(p_filters) AS f (name, chosen)
$$;
