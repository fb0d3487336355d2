-- What a statement counts times of the log by: the span of time that a column lies in. Spans are of this length, and one begins at
-- the origin; those of months begin with January 1970. All is in UTC; without an interval there is but one, NULL.
CREATE OR REPLACE FUNCTION projections._log_bucket_v1(p_column text, p_interval interval, p_origin timestamptz)
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET datestyle = 'ISO'
SET intervalstyle = 'postgres'
AS $$
    SELECT CASE
        WHEN p_interval IS NULL THEN 'NULL::timestamptz'
        WHEN m.months = 0 THEN format('date_bin(%L::interval, %s, %L::timestamptz)', p_interval, p_column, p_origin)
        ELSE format(
            '(''1970-01-01''::timestamp + make_interval(months => %1$s * (((extract(YEAR FROM %2$s AT TIME ZONE ''UTC'')::integer - 1970) '
            '* 12 + extract(MONTH FROM %2$s AT TIME ZONE ''UTC'')::integer - 1) / %1$s))) AT TIME ZONE ''UTC''',
            m.months, p_column
        )
    END
    FROM (
        SELECT coalesce(extract(YEAR FROM p_interval) * 12 + extract(MONTH FROM p_interval), 0)::integer
    ) AS m (months)
$$;
