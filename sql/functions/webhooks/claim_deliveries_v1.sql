-- Takes deliveries that are due, and uses up an attempt of each; returns them with all that a request needs. Send at once:
-- after the endpoint's deadline and p_margin an attempt counts as lost.
--
-- Fair: first over tenants, then over the endpoints of each. After the endpoints of the 100 deliveries that are due for longest,
-- each tenant in turn gives its next endpoint, round by round, from a place that p_from says (a random one serves); then each
-- tenant gives the oldest delivery of one of these endpoints, and so on. Endpoints are held to their limits over all workers by
-- the lock of their circuit; one whose circuit another worker holds is passed over. At most 1,000 endpoints are looked at in a
-- call. The one with which they carry p_bytes is the last.
--
-- Shared: a tenant may have p_share of the places, and of the bytes, that other tenants leave in this worker, of which p_free
-- places and p_bytes are free, and so many are held: arrays run in parallel. While no other tenant has an active endpoint, it may
-- have all that they leave. tenant_share is what held. With p_verified_only nothing is taken for an endpoint whose URL has not
-- shown that it wants webhooks.
CREATE OR REPLACE FUNCTION projections.claim_deliveries_v1(
    p_limit integer, p_from text DEFAULT '', p_margin interval DEFAULT '15 seconds',
    p_bytes bigint DEFAULT 8388608, p_free integer DEFAULT NULL, p_share double precision DEFAULT 1,
    p_tenants text[] DEFAULT '{}', p_held integer[] DEFAULT '{}', p_held_bytes bigint[] DEFAULT '{}',
    p_verified_only boolean DEFAULT FALSE
)
RETURNS TABLE (
    delivery_id bigint, lease_token bigint, endpoint_id text, event_id text, event_time timestamptz, tenant text, topic text,
    attempt integer, manual boolean, eligible_for_retry boolean, url text, headers text, policy text, gzip boolean,
    secrets text[], metadata text, data text, created_at timestamptz, claimed_at timestamptz, tenant_share double precision
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
SET plan_cache_mode = force_generic_plan
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz := clock_timestamp();
    _start text COLLATE "C" := coalesce(p_from, '');
    _free integer := coalesce(p_free, p_limit);
    _alone boolean;
    _share double precision;
    -- Tenants that have their share.
    _full text[];
    _head record;
    -- However many endpoints have what is for later, or is held back, these are found at once.
    _longest text[];
    _longest_tenants text[];
    -- The tenants of the round, and where each one's walk over its endpoints is.
    _round text[] := '{}';
    _after text[] := '{}';
    _turned boolean[] := '{}';
    _place integer := 0;
    _first text COLLATE "C" := '';
    _last text COLLATE "C" := '';
    _gathering boolean := TRUE;
    _wrapped boolean := FALSE;
    _circuit record;
    _room integer;
    _found integer := 0;
    _endpoints text[] := '{}';
    _owners text[] := '{}';
    _policies jsonb[] := '{}';
    _rooms integer[] := '{}';
    _least_in_flight integer;
    _most_in_flight integer;
    _tokens double precision[] := '{}';  -- NULL where there is no limit
    _taken bigint[];
BEGIN
    SELECT array_agg(o.endpoint_id ORDER BY o.next_at), array_agg(o.tenant ORDER BY o.next_at) INTO _longest, _longest_tenants
    FROM (
        SELECT o.endpoint_id, o.tenant, min(o.next_at) AS next_at FROM (
            SELECT d.endpoint_id, d.tenant, d.next_at FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.next_at <= _now ORDER BY d.next_at LIMIT 100
        ) AS o
        GROUP BY o.endpoint_id, o.tenant
    ) AS o;
    IF _longest IS NULL THEN
        RETURN;
    END IF;
    _alone := (SELECT e.tenant FROM projections.webhook_endpoints AS e WHERE e.state = 'active' ORDER BY e.tenant LIMIT 1)
    = (SELECT e.tenant FROM projections.webhook_endpoints AS e WHERE e.state = 'active' ORDER BY e.tenant DESC LIMIT 1);
    _share := CASE WHEN _alone THEN 1 ELSE p_share END;
    SELECT coalesce(array_agg(h.tenant), '{}') INTO _full
    FROM unnest(p_tenants, p_held, p_held_bytes) AS h (tenant, places, bytes)
    WHERE h.places >= ceil(_share * (_free + h.places)) OR h.bytes >= _share * (p_bytes + h.bytes);
    SELECT l.least::integer, l.most::integer INTO _least_in_flight, _most_in_flight
    FROM projections.webhook_limits AS l WHERE l.name = 'max_in_flight';
    IF _start <> '' THEN
        SELECT e.tenant INTO _first FROM projections.webhook_endpoints AS e
        WHERE e.endpoint_id >= _start ORDER BY e.endpoint_id LIMIT 1;
        _first := coalesce(_first, '');
        _last := _first;
    END IF;
    FOR _looks IN 1..1000 LOOP
        EXIT WHEN _found >= p_limit;
        IF _looks <= cardinality(_longest) THEN
            SELECT _longest[_looks] AS endpoint_id, _longest_tenants[_looks] AS tenant INTO _head;
            CONTINUE WHEN _head.tenant = ANY (_full) OR (cardinality(_endpoints) >= p_limit AND _head.tenant = ANY (_owners));
        ELSE
            IF _gathering THEN
                SELECT d.tenant INTO _head FROM projections.webhook_deliveries AS d
                WHERE d.state = 'pending' AND d.tenant > _last ORDER BY d.tenant LIMIT 1;
                IF NOT FOUND OR (_wrapped AND _head.tenant > _first) THEN
                    _gathering := NOT (_wrapped OR _first = '');
                    _wrapped := TRUE;
                    _last := '';
                    CONTINUE;
                END IF;
                _last := _head.tenant;
                CONTINUE WHEN _head.tenant = ANY (_full);
                _round := _round || _head.tenant;
                _after := array_append(_after, _start::text);
                _turned := _turned || (_start = '');
                _place := cardinality(_round);
            ELSE
                EXIT WHEN cardinality(_round) = 0;
                _place := _place % cardinality(_round) + 1;
            END IF;
            SELECT d.tenant, d.endpoint_id, d.next_at INTO _head FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.tenant = _round[_place] AND d.endpoint_id > _after[_place]
            ORDER BY d.tenant, d.endpoint_id, d.next_at, d.delivery_id LIMIT 1;
            IF NOT FOUND OR (_turned[_place] AND _start <> '' AND _head.endpoint_id > _start) THEN
                IF _turned[_place] THEN
                    _round := _round[:_place - 1] || _round[_place + 1:];
                    _after := _after[:_place - 1] || _after[_place + 1:];
                    _turned := _turned[:_place - 1] || _turned[_place + 1:];
                    _place := _place - 1;
                ELSE
                    _after[_place] := '';
                    _turned[_place] := TRUE;
                END IF;
                CONTINUE;
            END IF;
            _after[_place] := _head.endpoint_id;
            CONTINUE WHEN _head.next_at > _now OR _head.endpoint_id = ANY (_longest);
        END IF;
        SELECT
            c.*, least(greatest(e.max_in_flight, _least_in_flight), _most_in_flight) AS max_in_flight, e.rate_limit, e.policy
        INTO _circuit
        FROM projections.webhook_circuits AS c
        INNER JOIN projections.webhook_endpoints AS e ON c.endpoint_id = e.endpoint_id
        WHERE c.endpoint_id = _head.endpoint_id AND e.state = 'active' AND c.blocked_until <= _now
        AND (NOT p_verified_only OR e.verified_url = e.url)
        FOR NO KEY UPDATE OF c SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        _room := CASE WHEN _circuit.opened > 0 THEN 1 ELSE _circuit.max_in_flight END - (
            SELECT count(*) FROM projections.webhook_deliveries AS d
            WHERE d.endpoint_id = _head.endpoint_id AND d.state = 'leased'
        );
        IF _circuit.rate_limit IS NOT NULL THEN
            -- The bucket holds what a second lets through, and one at least. A clock that was set back takes nothing out.
            _circuit.tokens := least(
                greatest(_circuit.rate_limit, 1),
                _circuit.tokens + _circuit.rate_limit * greatest(extract(EPOCH FROM _now - _circuit.refilled_at), 0)
            );
            _room := least(_room, floor(_circuit.tokens)::integer);
        END IF;
        CONTINUE WHEN _room < 1;
        -- One of each endpoint at least: go on until there are as many endpoints as places. Of those that are due for longest, a
        -- tenant's first counts: they may all be of one tenant.
        _found := _found + (_looks > cardinality(_longest) OR _alone OR _head.tenant <> ALL (_owners))::integer;
        _endpoints := _endpoints || _head.endpoint_id;
        _owners := _owners || _head.tenant;
        _policies := _policies || projections.policy_within_limits_v1(_circuit.policy);
        _rooms := _rooms || least(_room, p_limit);
        _tokens := array_append(_tokens, CASE WHEN _circuit.rate_limit IS NOT NULL THEN _circuit.tokens END);
    END LOOP;
    IF cardinality(_endpoints) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(t.delivery_id) INTO _taken FROM (
        SELECT t.delivery_id, t.held_bytes, sum(t.size) OVER before AS bytes, sum(t.size) OVER before_of_tenant AS bytes_of_tenant
        FROM (
            SELECT t.*, 512 + octet_length(coalesce(t.data, v.data)) AS size
            FROM (
                SELECT r.*, row_number() OVER (ORDER BY r.turn, r.next_at, r.delivery_id) AS place
                FROM (
                    SELECT d.*, row_number() OVER (PARTITION BY d.tenant ORDER BY d.turn_of_endpoint, d.next_at, d.delivery_id) AS turn
                    FROM (
                        SELECT
                            d.*, coalesce(p_held[h.place], 0) AS held, coalesce(p_held_bytes[h.place], 0) AS held_bytes,
                            row_number() OVER (PARTITION BY d.endpoint_id ORDER BY d.next_at, d.delivery_id) AS turn_of_endpoint
                        FROM unnest(_endpoints, _owners, _rooms) AS c (endpoint_id, tenant, room)
                        CROSS JOIN LATERAL (SELECT array_position(p_tenants, c.tenant) AS place) AS h
                        CROSS JOIN LATERAL (
                            SELECT d.delivery_id, d.tenant, d.endpoint_id, d.next_at, d.event_time, d.event_id, d.data
                            FROM projections.webhook_deliveries AS d
                            WHERE d.state = 'pending' AND d.tenant = c.tenant AND d.endpoint_id = c.endpoint_id AND d.next_at <= _now
                            ORDER BY d.tenant, d.endpoint_id, d.next_at, d.delivery_id LIMIT c.room FOR NO KEY UPDATE SKIP LOCKED
                        ) AS d
                    ) AS d
                ) AS r
            ) AS t
            LEFT JOIN LATERAL (
                SELECT v.data FROM projections.webhook_events AS v
                WHERE t.event_time = v.event_time AND t.event_id = v.event_id LIMIT 1
            ) AS v ON TRUE
            -- What is before it is taken from what is free, and of that other tenants' is left to nobody.
            WHERE t.held + t.turn <= ceil(_share * (_free + t.held - (t.place - t.turn)))
            ORDER BY t.place LIMIT p_limit
        ) AS t
        WINDOW
            before AS (ORDER BY t.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
            before_of_tenant AS (PARTITION BY t.tenant ORDER BY t.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS t
    WHERE coalesce(t.bytes, 0) < p_bytes
    AND coalesce(t.bytes_of_tenant, 0) + t.held_bytes < _share * (p_bytes + t.held_bytes);
    RETURN QUERY
    WITH leased AS (
        UPDATE projections.webhook_deliveries AS d
        SET state = 'leased', attempts = d.attempts + 1, lease_token = hashtextextended(gen_random_uuid()::text, 0),
            lease_until = _now + make_interval(secs => (p.policy ->> 'timeout')::double precision) + p_margin
        FROM projections.webhook_endpoints AS e
        CROSS JOIN LATERAL (SELECT _policies[array_position(_endpoints, e.endpoint_id)] AS policy) AS p
        WHERE d.delivery_id = ANY (_taken) AND e.endpoint_id = d.endpoint_id
        RETURNING d.*, e.url, e.headers, p.policy, e.gzip
    ), paid AS (
        UPDATE projections.webhook_circuits AS c
        SET tokens = b.tokens - b.taken, refilled_at = _now
        FROM (
            SELECT b.endpoint_id, b.tokens, count(*) AS taken
            FROM unnest(_endpoints, _tokens) AS b (endpoint_id, tokens)
            INNER JOIN leased AS l ON b.endpoint_id = l.endpoint_id
            WHERE b.tokens IS NOT NULL GROUP BY b.endpoint_id, b.tokens
        ) AS b
        WHERE c.endpoint_id = b.endpoint_id
    )
    SELECT
        l.delivery_id, l.lease_token, l.endpoint_id, l.event_id, l.event_time, l.tenant, l.topic, l.attempts, l.manual,
        coalesce(v.eligible_for_retry, TRUE), l.url, l.headers::text, l.policy::text, l.gzip,
        ARRAY(
            SELECT s.secret FROM projections.webhook_secrets AS s
            WHERE s.endpoint_id = l.endpoint_id AND (s.expires_at IS NULL OR s.expires_at > _now) ORDER BY s.secret_id DESC
        ),
        v.metadata::text, coalesce(l.data, v.data), l.created_at, _now, _share
    FROM leased AS l
    LEFT JOIN projections.webhook_events AS v ON l.event_time = v.event_time AND l.event_id = v.event_id;
END;
$$;
