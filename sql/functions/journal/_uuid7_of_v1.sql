-- One of many UUIDv7 (RFC 9562) that are made together, as uuid7_v1 makes one: their random bits come from one seed, which has 122, and
-- a number of each. To ask the operating system for random bits takes 3 microseconds, a tenth of what an append takes for an event;
-- this takes a fifth of that. Inlined, like uuid7_v1.
CREATE OR REPLACE FUNCTION projections._uuid7_of_v1(p_at timestamptz, p_seed uuid, p_number bigint)
RETURNS uuid
LANGUAGE sql
STABLE PARALLEL SAFE
RETURN (
    lpad(to_hex((extract(EPOCH FROM p_at) * 1000000)::bigint / 1000), 12, '0')
    || '7' || lpad(to_hex((extract(EPOCH FROM p_at) * 1000000)::bigint % 1000 * 4096 / 1000), 3, '0')
    || substr('89ab', (p_number & 3)::integer + 1, 1)
    || substr(encode(sha256(uuid_send(p_seed) || int8send(p_number)), 'hex'), 1, 15)
)::uuid;
