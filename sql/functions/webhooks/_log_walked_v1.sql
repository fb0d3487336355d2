-- The statement of a page of the log: a walk along one index from a place on, and what of it is wanted. Whatever the filters, no more
-- than p_looked rows are looked at, a share of them for each of several keys. A walk that ends there ends with a row that is marked
-- as its last, wanted or not: the list goes on behind it, and what is behind the first such row of a page belongs to the next one.
-- Filters are kept from the walk: the planner would choose their indexes by what it expects.
-- p_keys: a query of keys, v; p_key: the condition on a key that the index begins with; p_visible: whose rows may be seen at all;
-- p_count: how many keys there are, 0 where each has one row, which is never the last that is looked at.
CREATE OR REPLACE FUNCTION projections._log_walked_v1(
    p_table text, p_columns text, p_keys text, p_key text, p_visible text, p_filter text, p_walk text, p_order text,
    p_count integer, p_looked integer, p_limit integer
)
RETURNS text
LANGUAGE sql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(
        'SELECT %1$s, r.wanted, r.is_last FROM (%2$s) AS v CROSS JOIN LATERAL ('
        'SELECT r.*, %3$s AS wanted, r.place = %4$s AS is_last FROM ('
        'SELECT r.*, row_number() OVER (ORDER BY %5$s) AS place FROM ('
        'SELECT r.* FROM projections.%6$I AS r WHERE %7$s ORDER BY %5$s LIMIT %4$s) AS r) AS r '
        'WHERE %8$s AND (%3$s OR r.place = %4$s) ORDER BY %5$s LIMIT %9$s) AS r ORDER BY %5$s LIMIT %9$s',
        p_columns, p_keys, coalesce(nullif(p_filter, ''), 'TRUE'), CASE p_count WHEN 0 THEN 2 ELSE greatest(p_looked / p_count, 1) END, p_order,
        p_table, concat_ws(' AND ', 'TRUE', nullif(p_key, ''), p_walk), coalesce(p_visible, 'TRUE'), p_limit
    )
$$;
