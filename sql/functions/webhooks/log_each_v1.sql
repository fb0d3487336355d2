-- What a list of the log is taken from when a column may have any of several values: for each value a walk of its own, along the
-- index that has the column before the time, and no further than the page is long. One condition for all values would have the
-- planner walk through everything. The other conditions are kept from it: it would choose their indexes by what it expects.
CREATE OR REPLACE FUNCTION projections.log_each_v1(
    p_table text, p_column text, p_values text[], p_others text, p_walk text, p_order text, p_limit integer
)
RETURNS text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(
        '(SELECT w.* FROM (SELECT DISTINCT unnest(%L::text[])) AS v (value) CROSS JOIN LATERAL ('
        'SELECT r.* FROM projections.%I AS r WHERE r.%I = v.value%s%s ORDER BY %s LIMIT %s) AS w)',
        p_values, p_table, p_column, ' AND coalesce(' || nullif(p_others, '') || ', FALSE)', ' AND ' || p_walk, p_order, p_limit
    )
$$;
