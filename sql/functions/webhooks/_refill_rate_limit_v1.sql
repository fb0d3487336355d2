-- How many attempts the rate limit of an endpoint lets through now: what was left, and what has been added since, by a token
-- bucket that holds what a second lets through, and one at least. A clock that was set back takes nothing out.
-- Inlined, for it runs for each endpoint that a claim looks at.
CREATE OR REPLACE FUNCTION projections._refill_rate_limit_v1(
    p_rate_limit double precision, p_tokens double precision, p_refilled_at timestamptz, p_now timestamptz
)
RETURNS double precision
LANGUAGE sql
IMMUTABLE PARALLEL SAFE
RETURN least(
    greatest(p_rate_limit, 1),
    p_tokens + p_rate_limit * greatest(extract(EPOCH FROM p_now - p_refilled_at), 0)
);
