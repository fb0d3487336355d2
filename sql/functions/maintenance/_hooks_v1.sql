-- A query that calls the functions of a hook, _hook_<hook>_<part>_v1, in the order of their names: what subscriptions, webhooks and
-- others do when the journal is maintained, which does not know them. Only the owner may create functions in the schema. sql/README.md
-- lists the hooks.
CREATE OR REPLACE FUNCTION projections._hooks_v1(p_hook text, p_arguments text DEFAULT '')
RETURNS text
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT string_agg(
        format('SELECT %L AS part, h.* FROM projections.%I(%s) AS h', f.names[1], f.proname, p_arguments),
        ' UNION ALL ' ORDER BY f.names
    )
    FROM (
        SELECT p.proname, regexp_match(p.proname, format('^_hook_%s_(.+)_v1$', p_hook)) COLLATE "C" AS names
        FROM pg_catalog.pg_proc AS p WHERE p.pronamespace = 'projections'::regnamespace
    ) AS f
    WHERE f.names IS NOT NULL
$$;
