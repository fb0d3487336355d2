-- Whether the index of interests answers a condition: it holds only where s.params contains (@>) what the event says. Told by the
-- tree of its view, SELECT condition FROM matchable_events, subscriptions_at_hand, as PostgreSQL keeps it: to have it planned would
-- evaluate parts of it.
CREATE OR REPLACE FUNCTION projections._looks_up_params_v1(p_tree text)
RETURNS boolean
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    -- Before version 16 the tree of a view begins with two relations of its own.
    _s CONSTANT text := format('^ :varno %s ', CASE WHEN current_setting('server_version_num')::integer < 160000 THEN 4 ELSE 2 END);
    _params CONSTANT text := _s || format(
        ':varattno %s ', (
            SELECT a.attnum FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = 'projections.subscriptions_at_hand'::regclass AND a.attname = 'params'
        )
    );
    _contains CONSTANT text := format(' :opno %s ', '@>(jsonb,jsonb)'::regoperator::oid);
    _depth integer := 0;
    _all integer := 0;  -- down to here there is nothing but AND
    _operator integer;  -- where one stands that is to hold
    _operands integer := 0;
    _node text[];
BEGIN
    FOR _node IN
        SELECT regexp_matches(substr(p_tree, strpos(p_tree, ':targetList ({TARGETENTRY :expr ')), '\{([A-Z_]+)([^{}]*)|\}', 'g') OFFSET 1
    LOOP
        IF _node[1] IS NULL THEN
            IF _depth = _operator THEN
                RETURN TRUE;
            END IF;
            _depth := _depth - 1;
            _all := least(_all, _depth);
            EXIT WHEN _depth = 0;
            CONTINUE;
        END IF;
        _depth := _depth + 1;
        IF _operator IS NOT NULL AND _node[1] = 'VAR' THEN
            _operands := _operands + 1;
            IF _operands = 1 AND _node[2] !~ _params OR _operands > 1 AND _node[2] ~ _s THEN
                _operator := NULL;
            END IF;
        ELSIF _depth = _operator + 1 AND _operands = 0 THEN
            _operator := NULL;
        ELSIF _depth = _all + 1 AND _node[1] = 'BOOLEXPR' AND _node[2] ~ ' :boolop and ' THEN
            _all := _depth;
        ELSIF _depth = _all + 1 AND _node[1] = 'OPEXPR' AND strpos(_node[2], _contains) > 0 THEN
            _operator := _depth;
            _operands := 0;
        END IF;
    END LOOP;
    RETURN FALSE;
END;
$$;
