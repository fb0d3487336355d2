-- The condition that a row of the log, of such columns of time and id, lies between these times and ahead of this place; NULL
-- where there is none. Row comparison alone would leave out no partition.
CREATE OR REPLACE FUNCTION projections._log_walk_v1(
    p_time_column text, p_id_column text, p_gte timestamptz, p_lte timestamptz, p_gt timestamptz, p_lt timestamptz,
    p_ascending boolean, p_time timestamptz, p_id text, p_inclusive boolean
)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
AS $$
    SELECT string_agg(format('%s %s %L::timestamptz', p_time_column, c.operator, c.bound), ' AND ')
        || CASE WHEN p_id IS NULL THEN '' ELSE format(
            ' AND (%s, %s) %s%s (%L::timestamptz, %L::text)', p_time_column, p_id_column,
            CASE WHEN p_ascending THEN '>' ELSE '<' END, CASE WHEN p_inclusive THEN '=' ELSE '' END, p_time, p_id
        ) END
    FROM (
        VALUES
        ('>=', p_gte), ('<=', p_lte), ('>', p_gt), ('<', p_lt), (CASE WHEN p_ascending THEN '>=' ELSE '<=' END, p_time)
    ) AS c (operator, bound)
    WHERE c.bound IS NOT NULL
$$;
