-- The time inside a UUIDv7; NULL for any other UUID. (Not STRICT: that would keep it from being inlined.)
CREATE OR REPLACE FUNCTION projections._uuid7_time_v1(p_id uuid)
RETURNS timestamptz
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
RETURN CASE
    WHEN get_byte(uuid_send(p_id), 6) >> 4 = 7
        THEN to_timestamp(('x' || encode(substr(uuid_send(p_id), 1, 6), 'hex'))::bit(48)::bigint / 1000.0)
END;
