-- Makes deliveries of events, inside the transaction that stores the offsets of their reader; returns how many are new.
-- Arrays of events run in parallel; p_places and p_for say which event, counted from 1, is for which endpoint. What is there
-- already stays as it is, so that events may be read again; what is older than all that is kept is passed over.
--
-- Where p_set_apart has a code, it is not known whether the endpoint wants the event: the delivery is a dead letter at once, for
-- somebody to decide. It has no copy of its payload, for one event may be so for all endpoints of a tenant.
--
-- A delivery and its payload are of one event: of several with one id, which several sources may have, an endpoint gets the first.
-- The log keeps the first of an id, and for which endpoints any of that tenant was; a delivery of another one has its own payload.
--
-- Of deliveries to an endpoint with the same key, all but one are 'waiting'. Who adds to an order holds the circuit of its
-- endpoint until it commits, as does who finishes one: each sees what the other has done. An endpoint that was made, or ordered,
-- after that has no order for these.
CREATE OR REPLACE FUNCTION projections._fan_out_v1(
    p_event_ids text[],
    p_times timestamptz[],
    p_tenants text[],
    p_topics text[],
    p_order_keys text[],
    p_not_before timestamptz[],
    p_eligible boolean[],
    p_metadata text[],
    p_data text[],
    p_places integer[],
    p_for text[],
    p_set_apart text[] DEFAULT NULL,
    p_expires_at timestamptz[] DEFAULT NULL
)
RETURNS integer
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _forgotten timestamptz := (SELECT f.before FROM projections.webhook_forgotten AS f);
    _ordered text[];
    _places integer[];
    _made integer;
    _logged bigint;
    _other record;
    -- Of which the log has had the id: those that somebody has erased, and those for which it is of another event.
    _erased integer[] := '{}';
    _apart integer[] := '{}';
BEGIN
    WITH held AS (
        SELECT c.endpoint_id FROM projections.webhook_circuits AS c
        WHERE c.endpoint_id = ANY (p_for)
        AND (SELECT e.ordering FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = c.endpoint_id) <> 'none'
        ORDER BY c.endpoint_id FOR NO KEY UPDATE OF c
    )
    SELECT array_agg(h.endpoint_id) INTO _ordered FROM held AS h;
    -- Endpoints that are gone, or were made after the event, get none; the others stay until this commits.
    WITH kept AS (
        SELECT e.endpoint_id, e.created_at FROM projections.webhook_endpoints AS e
        WHERE e.endpoint_id = ANY (p_for) AND NOT (e.state = 'disabled' AND e.when_disabled = 'discard')
        ORDER BY e.endpoint_id FOR KEY SHARE
    )
    SELECT
        array_agg(f.place ORDER BY f.place, f.endpoint_id), array_agg(f.endpoint_id ORDER BY f.place, f.endpoint_id),
        array_agg(f.set_apart ORDER BY f.place, f.endpoint_id)
    INTO _places, p_for, p_set_apart
    FROM (
        SELECT DISTINCT ON (p_event_ids[f.place] COLLATE "C", f.endpoint_id) f.place, f.endpoint_id, f.set_apart
        FROM unnest(p_places, p_for, p_set_apart) AS f (place, endpoint_id, set_apart)
        INNER JOIN kept AS k ON f.endpoint_id = k.endpoint_id
        WHERE p_times[f.place] >= k.created_at AND p_times[f.place] >= _forgotten
        ORDER BY p_event_ids[f.place] COLLATE "C", f.endpoint_id, f.place
    ) AS f;
    IF _places IS NULL THEN
        RETURN 0;
    END IF;
    SELECT count(*) - projections._log_events_v1(
        array_agg(p_event_ids[w.place]), array_agg(p_tenants[w.place]), array_agg(p_topics[w.place]), array_agg(p_times[w.place]),
        array_agg(p_eligible[w.place]), array_agg(w.endpoint_ids), array_agg(p_metadata[w.place]), array_agg(p_data[w.place]), array_agg(p_order_keys[w.place])
    )
    INTO _logged
    FROM (
        SELECT f.place, json_agg(f.endpoint_id)::text AS endpoint_ids
        FROM unnest(_places, p_for) AS f (place, endpoint_id) GROUP BY f.place ORDER BY f.place
    ) AS w;
    -- Somebody may have erased one that is there: nothing is delivered of it.
    IF _logged > 0 THEN
        SELECT
            coalesce(array_agg(f.place) FILTER (WHERE v.is_erased), '{}'),
            coalesce(array_agg(f.place) FILTER (WHERE l.row_time <> p_times[f.place]), '{}')
        INTO _erased, _apart
        FROM (SELECT DISTINCT unnest(_places) AS place) AS f
        CROSS JOIN LATERAL (
            SELECT l.row_time FROM projections.webhook_log_ids AS l WHERE l.id = p_event_ids[f.place] AND l.kind = 'event' LIMIT 1
        ) AS l
        LEFT JOIN LATERAL (
            SELECT v.erased_at IS NOT NULL AS is_erased FROM projections.webhook_events AS v
            WHERE v.event_time = l.row_time AND v.event_id = p_event_ids[f.place] AND v.tenant = p_tenants[f.place] LIMIT 1
        ) AS v ON TRUE;
        -- Who erases the id finds their deliveries by it.
        FOR _other IN
            SELECT l.row_time, f.event_id, f.tenant, f.endpoint_id
            FROM (
                SELECT p_event_ids[f.place] AS event_id, p_tenants[f.place] AS tenant, f.endpoint_id
                FROM unnest(_places, p_for) AS f (place, endpoint_id) WHERE f.place = ANY (_apart)
            ) AS f
            CROSS JOIN LATERAL (
                SELECT l.row_time FROM projections.webhook_log_ids AS l WHERE l.id = f.event_id AND l.kind = 'event' LIMIT 1
            ) AS l
        LOOP
            UPDATE projections.webhook_events AS v SET endpoint_ids = array_append(v.endpoint_ids, _other.endpoint_id)
            WHERE v.event_time = _other.row_time AND v.event_id = _other.event_id AND v.tenant = _other.tenant
            AND _other.endpoint_id <> ALL (v.endpoint_ids);
        END LOOP;
    END IF;
    WITH keyed AS (
        SELECT
            f.place, f.endpoint_id, f.set_apart, f.place = ANY (_erased) AS erased,
            CASE WHEN f.endpoint_id = ANY (_ordered)
            THEN CASE e.ordering WHEN 'key' THEN p_order_keys[f.place] WHEN 'endpoint' THEN '' END END AS order_key,
            e.on_dead
        FROM unnest(_places, p_for, p_set_apart) AS f (place, endpoint_id, set_apart)
        CROSS JOIN LATERAL (
            SELECT e.ordering, e.on_dead FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = f.endpoint_id LIMIT 1
        ) AS e
        WHERE (
            SELECT d.delivery_id FROM projections.webhook_deliveries AS d
            WHERE d.endpoint_id = f.endpoint_id AND d.event_id = p_event_ids[f.place]
        ) IS NULL
    ), busy AS (
        SELECT k.endpoint_id, k.order_key, TRUE AS busy
        FROM (SELECT DISTINCT k.endpoint_id, k.order_key, k.on_dead FROM keyed AS k WHERE k.order_key IS NOT NULL) AS k
        CROSS JOIN LATERAL (
            SELECT FROM projections.webhook_deliveries AS d
            WHERE d.endpoint_id = k.endpoint_id AND d.order_key = k.order_key
            AND d.order_key IS NOT NULL AND d.state IN ('waiting', 'pending', 'leased', 'dead')
            AND (d.state <> 'dead' OR k.on_dead = 'block')
            LIMIT 1
        ) AS d
    ), made AS (
        INSERT INTO projections.webhook_deliveries (
            endpoint_id, event_id, event_time, tenant, topic, order_key, state, next_at, last_code, finished_at, expires_at, data, erased
        )
        SELECT
            k.endpoint_id, p_event_ids[k.place], p_times[k.place], p_tenants[k.place], p_topics[k.place], k.order_key,
            CASE WHEN k.erased THEN 'erased' WHEN k.set_apart IS NOT NULL THEN 'dead' WHEN k.order_key IS NOT NULL AND (b.busy OR 0 < count(*) FILTER (
                WHERE NOT k.erased AND (k.set_apart IS NULL OR k.on_dead = 'block')
            ) OVER (
                PARTITION BY k.endpoint_id, k.order_key ORDER BY k.place ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            )) THEN 'waiting' ELSE 'pending' END,
            coalesce(p_not_before[k.place], clock_timestamp()), k.set_apart,
            CASE WHEN k.erased OR k.set_apart IS NOT NULL THEN clock_timestamp() END, p_expires_at[k.place],
            CASE WHEN k.place = ANY (_apart) AND NOT k.erased THEN p_data[k.place] END, k.erased
        FROM keyed AS k
        LEFT JOIN busy AS b ON k.endpoint_id = b.endpoint_id AND k.order_key = b.order_key
        ORDER BY k.place, k.endpoint_id
        ON CONFLICT (endpoint_id, event_id) DO NOTHING
        RETURNING 1
    )
    SELECT count(*) INTO _made FROM made;
    -- Of transactions that notify only one commits at a time; those of fan-out are few.
    PERFORM pg_notify('projections_webhooks', '') WHERE _made > 0;
    RETURN _made;
END;
$$;
