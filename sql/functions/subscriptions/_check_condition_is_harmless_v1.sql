-- Raises PJ080 when a parsed condition, given as the definition of a view, does what a condition may not: read a relation,
-- use a type that may run somebody's code, make much of little, or call a function that is not known to be harmless.
-- Harmless are PostgreSQL's own that depend on nothing but their arguments, apart from those that make much of little; of the
-- others those on JSON, texts and times; and what has been granted to the role projections_matcher by name.
CREATE OR REPLACE FUNCTION projections._check_condition_is_harmless_v1(p_view regclass)
RETURNS void
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _rule CONSTANT oid := (SELECT r.oid FROM pg_catalog.pg_rewrite AS r WHERE r.ev_class = p_view);
    _tree CONSTANT text := (SELECT r.ev_action::text FROM pg_catalog.pg_rewrite AS r WHERE r.oid = _rule);
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

    -- Checks of domains run functions, as do casts of types to JSON; only a superuser makes base types. Names of objects are
    -- looked up. A single letter as char(10000000) or bit(80000000) takes 10 MB, and is made without a look at the time.
    SELECT format_type(t.oid, NULL) INTO _found
    FROM (
        SELECT m[1]::oid AS oid FROM regexp_matches(_tree, '(?i):\w*typ(?:e|id|eid) (\d+)', 'g') AS m
        UNION
        -- Columns that somebody gives a function in FROM.
        SELECT t.oid::oid FROM regexp_matches(_tree, ':funccoltypes \(o ([\d ]+)\)', 'g') AS m
        CROSS JOIN LATERAL regexp_split_to_table(m[1], ' ') AS t (oid)
        UNION
        SELECT d.refobjid FROM pg_catalog.pg_depend AS d
        WHERE d.classid = 'pg_rewrite'::regclass AND d.objid = _rule AND d.refclassid = 'pg_type'::regclass
    ) AS u
    INNER JOIN pg_catalog.pg_type AS t ON u.oid = t.oid
    LEFT JOIN pg_catalog.pg_type AS i ON t.typelem = i.oid
    WHERE ((t.oid >= 16384 AND coalesce(i.typtype, t.typtype) <> 'b') OR t.typname ~ '^_?(reg(?!config)|xml$|pg_|aclitem|bpchar$|bit$)')
    AND coalesce(i.typrelid, t.typrelid) NOT IN ('projections.matchable_events'::regclass, 'projections.subscriptions_at_hand'::regclass)
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a condition may not use the type %', _found USING ERRCODE = 'PJ080', HINT = 'Compare texts or numbers.';
    END IF;

    -- Each level may double a text: ARRAY[ARRAY['"']::text]::text and so on.
    IF 40 < (
        SELECT max(b.depth) FROM (
            SELECT sum(CASE b.brace[1] WHEN '{' THEN 1 ELSE -1 END) OVER (ORDER BY b.place) AS depth
            FROM regexp_matches(_tree, '(?<!\\)[{}]', 'g') WITH ORDINALITY AS b (brace, place)
        ) AS b
    ) THEN
        RAISE EXCEPTION 'a condition is not nested that deeply' USING ERRCODE = 'PJ080', HINT = 'At most 40 levels, as parsed.';
    END IF;

    -- A subselect that is fed by another doubles a text without limit.
    IF _tree ~ '\{COMMONTABLEEXPR|\{XMLEXPR|:rtekind [14567] |:lateral true|:subLinkType 6 |:hasSubLinks true.*:hasSubLinks true' THEN
        RAISE EXCEPTION 'a subselect of a condition reads functions such as jsonb_array_elements, and no other subselect'
        USING ERRCODE = 'PJ080', HINT = 'WITH, VALUES, LATERAL, UNION, ARRAY(SELECT ...) and XML are refused, too.';
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
        WHEN p.pronamespace <> 'pg_catalog'::regnamespace THEN
            p.provolatile <> 'v' AND p.pronamespace <> 'projections'::regnamespace AND EXISTS (
                SELECT FROM aclexplode(p.proacl) AS a
                WHERE a.grantee = to_regrole('projections_matcher') AND a.privilege_type = 'EXECUTE'
            )
        WHEN p.proname ~ ('^(repeat|[lr]pad|format|(regexp_|array_)?replace|quote_\w+|array_fill|array_to_string|generate_series|'
            '(array|string|xml|range|jsonb?(_object)?)_agg\w*|xml\w*|xpath\w*|concat_ws)$') THEN FALSE
        WHEN p.provolatile = 'i' THEN TRUE
        WHEN p.provolatile = 's' THEN p.proname ~ ('^(jsonb?_|to_jsonb?$|row_to_json$|array_to_json$|concat|'
            'now$|transaction_timestamp$|statement_timestamp$|age$|timezone$|timestamp|date|time|interval|to_char$|'
            'to_timestamp$|to_date$|to_ts|plainto_tsquery$|phraseto_tsquery$|websearch_to_tsquery$)')
        ELSE FALSE
    END
    LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'a condition may not call %', _found
        USING ERRCODE = 'PJ080', HINT = 'GRANT EXECUTE ON FUNCTION ... TO projections_matcher allows a function that writes nothing.';
    END IF;
END;
$$;
