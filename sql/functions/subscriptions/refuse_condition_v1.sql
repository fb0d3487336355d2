-- Raises PJ080 when a parsed condition, given as the definition of a view, does what a condition may not: read a relation,
-- or call a function that is not known to be harmless. Those are PostgreSQL's own that depend on nothing but their
-- arguments, apart from some that make much of little; of the others those on JSON, texts and times; and what has been
-- granted to the role projections_matcher by name.
CREATE OR REPLACE FUNCTION projections.refuse_condition_v1(p_view regclass)
RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _tree CONSTANT text := (SELECT r.ev_action::text FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = p_view);
    _found text;
BEGIN
    SELECT c.oid::regclass::text INTO _found
    FROM regexp_matches(_tree, ':relid (\d+)', 'g') AS m
    INNER JOIN pg_catalog.pg_class AS c ON m[1]::oid = c.oid
    WHERE c.oid <> p_view LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a condition sees the event e and the subscription s, and not %', _found
        USING ERRCODE = 'PJ080', HINT = 'Give it what it needs in params.';
    END IF;

    WITH called AS (
        SELECT m[1]::oid AS oid FROM regexp_matches(_tree, ':(?:funcid|opfuncid|aggfnoid|winfnoid) (\d+)', 'g') AS m
        UNION
        SELECT o.oprcode FROM regexp_matches(_tree, ':opno (\d+)', 'g') AS m
        INNER JOIN pg_catalog.pg_operator AS o ON m[1]::oid = o.oid
    )
    SELECT p.oid::regprocedure::text INTO _found
    FROM called AS f INNER JOIN pg_catalog.pg_proc AS p ON f.oid = p.oid
    WHERE NOT CASE
        WHEN p.pronamespace <> 'pg_catalog'::regnamespace THEN p.provolatile <> 'v' AND EXISTS (
            SELECT FROM aclexplode(p.proacl) AS a
            WHERE a.grantee = to_regrole('projections_matcher') AND a.privilege_type = 'EXECUTE'
        )
        WHEN p.proname IN ('repeat', 'lpad', 'rpad', 'array_fill', 'generate_series', 'format') THEN FALSE
        WHEN p.provolatile = 'i' THEN TRUE
        WHEN p.provolatile = 's' THEN p.proname ~ ('^(jsonb?_|to_jsonb?$|row_to_json$|array_to_json$|array_to_string$|concat|'
            'now$|transaction_timestamp$|statement_timestamp$|age$|timezone$|timestamp|date|time|interval|to_char$|'
            'to_timestamp$|to_date$|to_ts|plainto_tsquery$|phraseto_tsquery$|websearch_to_tsquery$|text_(json|xml))')
        ELSE FALSE
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a condition may not call %', _found
        USING ERRCODE = 'PJ080', HINT = 'GRANT EXECUTE ON FUNCTION ... TO projections_matcher allows a function that writes nothing.';
    END IF;
END;
$$;
