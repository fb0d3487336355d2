-- Takes deliveries that are due, and uses up an attempt of each; returns them with all that a request needs. Send at once:
-- after the endpoint's deadline and p_margin an attempt counts as lost. Nothing is taken whose expiry has passed: some of it ends first.
-- An endpoint of which more has is passed over until that has ended, too, and costs others no place.
--
-- Fair: first over tenants, then over the endpoints of each. After the endpoints of the 100 deliveries that are due for longest,
-- each tenant in turn gives its next endpoint, round by round, from a place that p_from says (a random one serves); then each
-- tenant gives the oldest delivery of one of these endpoints, and so on. Endpoints are held to their limits over all workers by
-- the lock of their circuit; one whose circuit another worker holds is passed over. At most 1,000 endpoints are looked at in a
-- call. The one with which they carry p_bytes is the last.
--
-- Shared: a tenant may have p_share of the places, and of the bytes, that other tenants leave in this worker, of which p_free
-- places and p_bytes are free, and those that are held: arrays run in parallel. While no other tenant has an active endpoint, it may
-- have all that they leave. tenant_share is what held. With p_verified_only nothing is taken for an endpoint whose URL has not
-- shown that it wants webhooks.
CREATE OR REPLACE FUNCTION projections._claim_deliveries_v1(
    p_limit integer, p_from text DEFAULT '', p_margin interval DEFAULT '15 seconds',
    p_bytes bigint DEFAULT 8388608, p_free integer DEFAULT NULL, p_share double precision DEFAULT 1,
    p_tenants text[] DEFAULT '{}', p_held integer[] DEFAULT '{}', p_held_bytes bigint[] DEFAULT '{}',
    p_verified_only boolean DEFAULT FALSE
)
RETURNS TABLE (
    delivery_id bigint, lease_token bigint, endpoint_id text, event_id text, event_time timestamptz, tenant text, topic text,
    attempt integer, manual boolean, eligible_for_retry boolean, url text, headers text, policy text, gzip boolean,
    secrets text[], metadata text, data text, created_at timestamptz, claimed_at timestamptz, tenant_share double precision,
    credentials text
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
    _now timestamptz;
    _start text COLLATE "C" := coalesce(p_from, '');
    _free integer := coalesce(p_free, p_limit);
    _alone boolean;
    _share double precision;
    -- Tenants that have their share.
    _full text[];
    _tenant text COLLATE "C";
    _endpoint text COLLATE "C";
    _next_at timestamptz;
    _expired boolean;
    -- However many endpoints have what is for later, or is held back, these are found at once.
    _longest text[];
    _longest_tenants text[];
    _all_seen boolean;  -- these are all endpoints with what is due, for there is so little, and all were looked at
    -- The tenants of the round, and where each one's walk over its endpoints is.
    _round text[] := '{}';
    _after text[] := '{}';
    _turned boolean[] := '{}';
    -- Of how many rounds more it has given its endpoint already: one of those that are due for longest.
    _ahead integer[] := '{}';
    _place integer := 0;
    _first text COLLATE "C" := '';
    _last text COLLATE "C" := '';
    _gathering boolean := TRUE;
    _wrapped boolean := FALSE;
    _circuit record;
    _room integer;
    _seen text[] := '{}';
    _found integer := 0;
    _endpoints text[] := '{}';
    _owners text[] := '{}';
    _tenants integer := 0;
    _first_of_tenant boolean;
    _rooms integer[] := '{}';
    _policies jsonb[] := '{}';
    _asked jsonb;  -- of the endpoint before: most ask for the same
    _policy jsonb;
    _least_in_flight integer;
    _most_in_flight integer;
    _tokens double precision[] := '{}';  -- NULL where there is no limit
    _depth double precision;
    _cut_off boolean;
    _taken bigint[];
    _sizes bigint[];
    _fits boolean;
    -- A delivery has another one in each claim.
    _token bigint := hashtextextended(gen_random_uuid()::text, 0);
BEGIN
    PERFORM projections._expire_deliveries_v1();
    _now := clock_timestamp();  -- what has gone on behind these is due
    SELECT
        coalesce(array_agg(o.endpoint_id ORDER BY o.next_at) FILTER (WHERE NOT o.expired), '{}'),
        coalesce(array_agg(o.tenant ORDER BY o.next_at) FILTER (WHERE NOT o.expired), '{}'), sum(o.due) < 100
    INTO _longest, _longest_tenants, _all_seen
    FROM (
        SELECT
            o.endpoint_id, o.tenant, min(o.next_at) AS next_at, count(*) AS due,
            (array_agg(o.expired ORDER BY o.next_at, o.delivery_id))[1] AS expired
        FROM (
            SELECT d.endpoint_id, d.tenant, d.next_at, d.delivery_id, coalesce(d.expires_at <= _now, FALSE) AS expired
            FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.next_at <= _now ORDER BY d.next_at LIMIT 100
        ) AS o
        GROUP BY o.endpoint_id, o.tenant
    ) AS o;
    IF _all_seen IS NULL THEN
        RETURN;
    END IF;
    SELECT
        (SELECT e.tenant FROM projections.webhook_endpoints AS e WHERE e.state = 'active' ORDER BY e.tenant LIMIT 1),
        (SELECT e.tenant FROM projections.webhook_endpoints AS e WHERE e.state = 'active' ORDER BY e.tenant DESC LIMIT 1)
    INTO _tenant, _last;
    _alone := coalesce(_tenant = _last, FALSE);
    _share := CASE WHEN _alone THEN 1 ELSE p_share END;
    SELECT coalesce(array_agg(h.tenant), '{}') INTO _full
    FROM unnest(p_tenants, p_held, p_held_bytes) AS h (tenant, places, bytes)
    WHERE h.places >= ceil(_share * (_free + h.places)) OR h.bytes >= _share * (p_bytes + h.bytes);
    SELECT l.least::integer, l.most::integer INTO _least_in_flight, _most_in_flight
    FROM projections.webhook_limits AS l WHERE l.name = 'max_in_flight';
    IF _alone THEN
        _round := ARRAY[_last];
        _after := ARRAY[_start::text];
        _turned := ARRAY[_start = ''];
        _ahead := '{0}';
        _gathering := FALSE;
    ELSIF _start <> '' THEN
        SELECT e.tenant INTO _first FROM projections.webhook_endpoints AS e
        WHERE e.endpoint_id >= _start ORDER BY e.endpoint_id LIMIT 1;
        _first := coalesce(_first, '');
    END IF;
    _last := _first;
    FOR _looks IN 1..1000 LOOP
        EXIT WHEN _found >= p_limit;
        IF _looks <= cardinality(_longest) THEN
            _endpoint := _longest[_looks];
            _tenant := _longest_tenants[_looks];
            CONTINUE WHEN _tenant = ANY (_full);
            -- While there are others, one tenant's are not looked at beyond half of what is asked for: the rounds come to them.
            IF NOT _alone AND _tenant = ANY (_owners)
                AND (cardinality(_endpoints) >= p_limit OR 2 * cardinality(array_positions(_owners, _tenant)) >= p_limit)
            THEN
                _all_seen := FALSE;
                CONTINUE;
            END IF;
            _seen := array_append(_seen, _endpoint::text);
        ELSE
            EXIT WHEN _all_seen;
            IF _gathering THEN
                SELECT d.tenant INTO _tenant FROM projections.webhook_deliveries AS d
                WHERE d.state = 'pending' AND d.tenant > _last ORDER BY d.tenant LIMIT 1;
                IF NOT FOUND OR (_wrapped AND _tenant > _first) THEN
                    _gathering := NOT (_wrapped OR _first = '');
                    _wrapped := TRUE;
                    _last := '';
                    CONTINUE;
                END IF;
                _last := _tenant;
                CONTINUE WHEN _tenant = ANY (_full);
                _round := _round || _tenant;
                _after := array_append(_after, _start::text);
                _turned := _turned || (_start = '');
                _place := cardinality(_round);
                _ahead := _ahead || cardinality(array_positions(_owners, _tenant)) - 1;
                CONTINUE WHEN _ahead[_place] >= 0;  -- of this round, too, and that is counted
            ELSE
                EXIT WHEN cardinality(_round) = 0;
                _place := _place % cardinality(_round) + 1;
                IF _ahead[_place] > 0 THEN
                    _ahead[_place] := _ahead[_place] - 1;
                    _found := _found + 1;
                    CONTINUE;
                END IF;
            END IF;
            SELECT d.tenant, d.endpoint_id, d.next_at, coalesce(d.expires_at <= _now, FALSE)
            INTO _tenant, _endpoint, _next_at, _expired FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.tenant = _round[_place] AND d.endpoint_id > _after[_place]
            ORDER BY d.tenant, d.endpoint_id, d.next_at, d.delivery_id LIMIT 1;
            IF NOT FOUND OR (_turned[_place] AND _start <> '' AND _endpoint > _start) THEN
                IF _turned[_place] THEN
                    _round := _round[:_place - 1] || _round[_place + 1:];
                    _after := _after[:_place - 1] || _after[_place + 1:];
                    _turned := _turned[:_place - 1] || _turned[_place + 1:];
                    _ahead := _ahead[:_place - 1] || _ahead[_place + 1:];
                    _place := _place - 1;
                ELSE
                    _after[_place] := '';
                    _turned[_place] := TRUE;
                END IF;
                CONTINUE;
            END IF;
            _after[_place] := _endpoint;
            CONTINUE WHEN _next_at > _now OR _expired OR _endpoint = ANY (_seen);
        END IF;
        SELECT
            c.opened, c.tokens, c.refilled_at, e.rate_limit, e.policy,
            least(greatest(e.max_in_flight, _least_in_flight), _most_in_flight) AS max_in_flight
        INTO _circuit
        FROM projections.webhook_circuits AS c
        INNER JOIN projections.webhook_endpoints AS e ON c.endpoint_id = e.endpoint_id
        WHERE c.endpoint_id = _endpoint AND e.state = 'active' AND c.blocked_until <= _now
        AND (NOT p_verified_only OR e.verified_url = e.url)
        FOR NO KEY UPDATE OF c SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        _room := CASE WHEN _circuit.opened > 0 THEN 1 ELSE _circuit.max_in_flight END - (
            SELECT count(*) FROM projections.webhook_deliveries AS d
            WHERE d.endpoint_id = _endpoint AND d.state = 'leased'
        );
        IF _circuit.rate_limit IS NOT NULL THEN
            _circuit.tokens := projections._refill_rate_limit_v1(_circuit.rate_limit, _circuit.tokens, _circuit.refilled_at, _now);
            _room := least(_room, floor(_circuit.tokens)::integer);
        END IF;
        CONTINUE WHEN _room < 1;
        -- One of each endpoint at least: go on until there are as many endpoints as places. Of those that are due for longest, a
        -- tenant's first counts: they may all be of one tenant.
        _first_of_tenant := _tenant <> ALL (_owners);
        _tenants := _tenants + _first_of_tenant::integer;
        _found := _found + (_looks > cardinality(_longest) OR _alone OR _first_of_tenant)::integer;
        _endpoints := _endpoints || _endpoint;
        _owners := _owners || _tenant;
        IF _asked IS DISTINCT FROM _circuit.policy THEN
            _asked := _circuit.policy;
            _policy := projections._policy_within_limits_v1(_asked);
        END IF;
        _policies := _policies || _policy;
        _rooms := _rooms || least(_room, p_limit);
        _tokens := array_append(_tokens, CASE WHEN _circuit.rate_limit IS NOT NULL THEN _circuit.tokens END);
    END LOOP;
    IF cardinality(_endpoints) = 0 THEN
        RETURN;
    END IF;
    LOOP
        -- Twice of each endpoint what is taken of it where all tenants, and all endpoints of a tenant, have enough. Only where all
        -- of that is taken, for others have less, more is looked at.
        _depth := 4 * coalesce(_depth, 0.5);
        SELECT
            array_agg(t.delivery_id ORDER BY t.place), array_agg(t.size ORDER BY t.place),
            coalesce(bool_or(t.turn_of_endpoint = t.depth AND t.depth < t.room), FALSE),
            sum(t.size) <= min(_share * (p_bytes + t.held_bytes) - t.held_bytes)
        INTO _taken, _sizes, _cut_off, _fits
        FROM (
            SELECT t.*, 512 + octet_length(coalesce(t.data, v.data)) AS size
            FROM (
                SELECT r.*, row_number() OVER (ORDER BY r.turn, r.next_at, r.delivery_id) AS place
                FROM (
                    SELECT
                        d.*, row_number() OVER (PARTITION BY d.tenant ORDER BY d.turn_of_endpoint, d.next_at, d.delivery_id) AS turn
                    FROM (
                        SELECT
                            d.*, c.depth, c.room, coalesce(p_held[h.place], 0) AS held,
                            coalesce(p_held_bytes[h.place], 0) AS held_bytes,
                            row_number() OVER (PARTITION BY d.endpoint_id ORDER BY d.next_at, d.delivery_id) AS turn_of_endpoint
                        FROM (
                            SELECT c.*, greatest(2, ceil(_depth * p_limit / _tenants / count(*) OVER (PARTITION BY c.tenant))) AS depth
                            FROM unnest(_endpoints, _owners, _rooms) AS c (endpoint_id, tenant, room)
                        ) AS c
                        CROSS JOIN LATERAL (SELECT array_position(p_tenants, c.tenant) AS place) AS h
                        CROSS JOIN LATERAL (
                            SELECT d.delivery_id, d.tenant, d.endpoint_id, d.next_at, d.event_time, d.event_id, d.data
                            FROM projections.webhook_deliveries AS d
                            WHERE d.state = 'pending' AND d.tenant = c.tenant AND d.endpoint_id = c.endpoint_id
                            AND d.next_at <= _now
                            ORDER BY d.tenant, d.endpoint_id, d.next_at, d.delivery_id
                            LIMIT least(c.room, c.depth) FOR NO KEY UPDATE SKIP LOCKED
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
        ) AS t;
        EXIT WHEN NOT _cut_off;
    END LOOP;
    IF _fits IS NOT TRUE THEN
        SELECT array_agg(t.delivery_id) INTO _taken FROM (
            SELECT
                t.delivery_id, coalesce(p_held_bytes[array_position(p_tenants, d.tenant)], 0) AS held_bytes,
                sum(t.size) OVER before AS bytes, sum(t.size) OVER before_of_tenant AS bytes_of_tenant
            FROM unnest(_taken, _sizes) WITH ORDINALITY AS t (delivery_id, size, place)
            CROSS JOIN LATERAL (
                SELECT d.tenant FROM projections.webhook_deliveries AS d WHERE d.delivery_id = t.delivery_id LIMIT 1
            ) AS d
            WINDOW
                before AS (ORDER BY t.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                before_of_tenant AS (PARTITION BY d.tenant ORDER BY t.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
        ) AS t
        WHERE coalesce(t.bytes, 0) < p_bytes
        AND coalesce(t.bytes_of_tenant, 0) + t.held_bytes < _share * (p_bytes + t.held_bytes);
    END IF;
    RETURN QUERY
    WITH leased AS (
        UPDATE projections.webhook_deliveries AS d
        SET state = 'leased', attempts = d.attempts + 1, lease_token = _token,
            lease_until = _now + make_interval(secs => (p.policy ->> 'timeout')::double precision) + p_margin
        FROM projections.webhook_endpoints AS e
        INNER JOIN unnest(_endpoints, _policies) AS p (endpoint_id, policy) ON e.endpoint_id = p.endpoint_id
        WHERE d.delivery_id = ANY (_taken) AND e.endpoint_id = d.endpoint_id
        AND (d.expires_at IS NULL OR d.expires_at > _now)
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
        v.metadata::text, coalesce(l.data, v.data), l.created_at, _now, _share,
        (
            SELECT json_object_agg(c.kind, json_build_object('facts', c.facts, 'secret', c.secret))::text
            FROM projections.webhook_credentials AS c WHERE c.endpoint_id = l.endpoint_id
        )
    FROM leased AS l
    LEFT JOIN projections.webhook_events AS v ON l.event_time = v.event_time AND l.event_id = v.event_id
    ORDER BY l.delivery_id;
END;
$$;
