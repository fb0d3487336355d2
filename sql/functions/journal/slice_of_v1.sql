-- The slice of a source: Java's String.hashCode over UTF-16 units, its remainder by 1024, its absolute value.
-- The same number that Akka and Pekko store; journal/slices.py is its twin, compared by a property test.
CREATE OR REPLACE FUNCTION projections.slice_of_v1(p_source_id text)
RETURNS integer
LANGUAGE plpgsql
IMMUTABLE STRICT PARALLEL SAFE
AS $$
DECLARE
    _character text;
    _code bigint;
    _hash bigint := 0;
BEGIN
    FOREACH _character IN ARRAY string_to_array(p_source_id, NULL) LOOP
        _code := ascii(_character);
        IF _code > 65535 THEN  -- two UTF-16 units, a surrogate pair
            _hash := (_hash * 31 + 55296 + ((_code - 65536) >> 10)) & 4294967295;
            _code := 56320 + ((_code - 65536) & 1023);
        END IF;
        _hash := (_hash * 31 + _code) & 4294967295;
    END LOOP;
    IF _hash > 2147483647 THEN
        _hash := _hash - 4294967296;
    END IF;
    RETURN abs(_hash % 1024)::integer;
END;
$$;
