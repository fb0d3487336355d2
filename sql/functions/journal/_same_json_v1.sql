-- Whether two JSON texts, of which any may be NULL, have the same content: white space and the order of keys do not count, nor in
-- an object the trace in which it was written (traceparent, tracestate). What jsonb cannot hold is compared as text.
CREATE OR REPLACE FUNCTION projections._same_json_v1(p_one text, p_other text)
RETURNS boolean
LANGUAGE plpgsql
IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _one jsonb;
    _other jsonb;
BEGIN
    IF p_one IS NOT DISTINCT FROM p_other THEN
        RETURN TRUE;
    END IF;
    _one := coalesce(p_one, '{}');
    _other := coalesce(p_other, '{}');
    IF jsonb_typeof(_one) = 'object' AND jsonb_typeof(_other) = 'object' THEN
        _one := _one - '{traceparent,tracestate}'::text[];
        _other := _other - '{traceparent,tracestate}'::text[];
    END IF;
    RETURN _one = _other;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN RETURN FALSE;
END;
$$;
