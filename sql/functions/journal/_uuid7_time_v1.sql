-- The time inside a UUIDv7; NULL for any other UUID. (Not STRICT: that would keep it from being inlined.)
CREATE OR REPLACE FUNCTION projections._uuid7_time_v1(p_id uuid)
RETURNS timestamptz
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN substr(p_id::text, 15, 1) = '7'
        THEN to_timestamp(('x' || lpad(replace(left(p_id::text, 13), '-', ''), 16, '0'))::bit(64)::bigint / 1000.0)
END;
