-- Takes deliveries that are due, and uses up an attempt of each; returns them with all that a request needs. Send at once:
-- after the endpoint's deadline and p_margin an attempt counts as lost.
--
-- Fair: after the endpoints of the 100 deliveries that are due for longest, all are walked in a ring, from a place that p_from
-- says (a random one serves), and each gives its oldest, then each its second oldest, and so on. Endpoints are held to their
-- limits over all workers by the lock of their circuit; one whose circuit another worker holds is passed over. At most 1,000
-- endpoints are looked at in a call. The one with which they carry p_bytes is the last.
CREATE OR REPLACE FUNCTION projections.claim_deliveries_v1(
    p_limit integer, p_from text DEFAULT '', p_margin interval DEFAULT '15 seconds',
    p_bytes bigint DEFAULT 8388608
)
RETURNS TABLE (
    delivery_id bigint, lease_token bigint, endpoint_id text, event_id text, event_time timestamptz, tenant text, topic text,
    attempt integer, manual boolean, eligible_for_retry boolean, url text, headers text, policy text, gzip boolean,
    secrets text[], metadata text, data text, created_at timestamptz, claimed_at timestamptz
)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    _now timestamptz := clock_timestamp();
    _after text := coalesce(p_from, '');
    _head record;
    -- However many endpoints have what is for later, or is held back, these are found at once.
    _longest text[] := ARRAY(
        SELECT DISTINCT o.endpoint_id FROM (
            SELECT d.endpoint_id FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.next_at <= _now ORDER BY d.next_at LIMIT 100
        ) AS o
    );
    _circuit record;
    _room integer;
    _found integer := 0;
    _endpoints text[] := '{}';
    _rooms integer[] := '{}';
    _tokens double precision[] := '{}';  -- NULL where there is no limit
    _wrapped boolean := FALSE;
    _taken bigint[];
BEGIN
    IF cardinality(_longest) = 0 THEN
        RETURN;
    END IF;
    FOR _looks IN 1..1000 LOOP
        EXIT WHEN _found >= p_limit;
        IF _looks <= cardinality(_longest) THEN
            SELECT _longest[_looks] AS endpoint_id INTO _head;
        ELSE
            SELECT d.endpoint_id, d.next_at INTO _head FROM projections.webhook_deliveries AS d
            WHERE d.state = 'pending' AND d.endpoint_id > _after ORDER BY d.endpoint_id, d.next_at, d.delivery_id LIMIT 1;
            IF NOT FOUND OR (_wrapped AND _head.endpoint_id > p_from) THEN
                EXIT WHEN _wrapped OR coalesce(p_from, '') = '';
                _wrapped := TRUE;
                _after := '';
                CONTINUE;
            END IF;
            _after := _head.endpoint_id;
            CONTINUE WHEN _head.next_at > _now OR _head.endpoint_id = ANY (_longest);
        END IF;
        SELECT c.*, e.max_in_flight, e.rate_limit INTO _circuit
        FROM projections.webhook_circuits AS c
        INNER JOIN projections.webhook_endpoints AS e ON c.endpoint_id = e.endpoint_id
        WHERE c.endpoint_id = _head.endpoint_id AND e.state = 'active' AND c.blocked_until <= _now
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
        _endpoints := _endpoints || _head.endpoint_id;
        _rooms := _rooms || least(_room, p_limit);
        _tokens := array_append(_tokens, CASE WHEN _circuit.rate_limit IS NOT NULL THEN _circuit.tokens END);
        -- One of each endpoint at least: go on until there are as many endpoints as places.
        _found := _found + 1;
    END LOOP;
    IF cardinality(_endpoints) = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(t.delivery_id) INTO _taken FROM (
        SELECT t.delivery_id, sum(512 + octet_length(coalesce(t.data, v.data))) OVER before AS bytes
        FROM (
            SELECT r.* FROM (
                SELECT d.*, row_number() OVER (PARTITION BY d.endpoint_id ORDER BY d.next_at, d.delivery_id) AS turn
                FROM (
                    SELECT d.*
                    FROM unnest(_endpoints, _rooms) AS c (endpoint_id, room)
                    CROSS JOIN LATERAL (
                        SELECT d.delivery_id, d.endpoint_id, d.next_at, d.event_time, d.event_id, d.data
                        FROM projections.webhook_deliveries AS d
                        WHERE d.state = 'pending' AND d.endpoint_id = c.endpoint_id AND d.next_at <= _now
                        ORDER BY d.endpoint_id, d.next_at, d.delivery_id LIMIT c.room FOR NO KEY UPDATE SKIP LOCKED
                    ) AS d
                ) AS d
            ) AS r
            ORDER BY r.turn, r.next_at LIMIT p_limit
        ) AS t
        LEFT JOIN projections.webhook_events AS v ON t.event_time = v.event_time AND t.event_id = v.event_id
        WINDOW before AS (ORDER BY t.turn, t.next_at, t.delivery_id ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
    ) AS t
    WHERE coalesce(t.bytes, 0) < p_bytes;
    RETURN QUERY
    WITH leased AS (
        UPDATE projections.webhook_deliveries AS d
        SET state = 'leased', attempts = d.attempts + 1, lease_token = hashtextextended(gen_random_uuid()::text, 0),
            lease_until = _now + make_interval(secs => (e.policy ->> 'timeout')::double precision) + p_margin
        FROM projections.webhook_endpoints AS e
        WHERE d.delivery_id = ANY (_taken) AND e.endpoint_id = d.endpoint_id
        RETURNING d.*, e.url, e.headers, e.policy, e.gzip
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
        v.metadata::text, coalesce(l.data, v.data), l.created_at, _now
    FROM leased AS l
    LEFT JOIN projections.webhook_events AS v ON l.event_time = v.event_time AND l.event_id = v.event_id;
END;
$$;
