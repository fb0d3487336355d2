-- Changes an endpoint as a JSON object of its columns says; those left out stay. A tenant of NULL is any. Gives the row as it is
-- written.
--
-- Raises PJ090 for a column that is not for changing or a value that cannot be, PJ091 when the tenant has no such endpoint, and
-- PJ099 when it has another version than p_version; NULL is any.
CREATE OR REPLACE FUNCTION projections._change_endpoint_v1(
    p_tenant text, p_endpoint_id text, p_changes jsonb, p_version integer DEFAULT NULL
)
RETURNS projections.webhook_endpoints
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _old projections.webhook_endpoints;
    _new projections.webhook_endpoints;
    _wrong text;
BEGIN
    SELECT string_agg(k.name, ', ') INTO _wrong FROM jsonb_object_keys(p_changes) AS k (name)
    WHERE k.name <> ALL (ARRAY[
        'url', 'description', 'topics', 'filter', 'headers', 'policy', 'max_in_flight', 'rate_limit', 'ordering', 'on_dead',
        'when_disabled', 'gzip'
    ]);
    IF FOUND AND _wrong IS NOT NULL THEN
        RAISE EXCEPTION 'an endpoint cannot be changed in %', _wrong USING ERRCODE = 'PJ090';
    END IF;
    _old := projections._lock_endpoint_v1(p_tenant, p_endpoint_id, p_version);
    _new := jsonb_populate_record(_old, p_changes);
    -- What claims and outcomes reckon with.
    IF jsonb_typeof(_new.policy -> 'schedule') IS DISTINCT FROM 'array' OR EXISTS (
        SELECT FROM unnest(ARRAY['timeout', 'breaker_failures', 'breaker_pause,first', 'breaker_pause,longest', 'breaker_pause,jitter'])
        AS n (path) WHERE jsonb_typeof(_new.policy #> string_to_array(n.path, ',')) IS DISTINCT FROM 'number'
    ) THEN
        RAISE EXCEPTION 'an endpoint cannot have such a policy; take that of another endpoint, and change it: %', _new.policy
        USING ERRCODE = 'PJ090';
    END IF;
    UPDATE projections.webhook_endpoints AS e SET
        url = _new.url, description = _new.description, topics = _new.topics,
        filter = CASE WHEN json_typeof(_new.filter) <> 'null' THEN _new.filter END,
        headers = _new.headers, policy = _new.policy, max_in_flight = _new.max_in_flight, rate_limit = _new.rate_limit,
        ordering = _new.ordering, on_dead = _new.on_dead, when_disabled = _new.when_disabled, gzip = _new.gzip,
        version = e.version + 1, updated_at = clock_timestamp()
    WHERE e.endpoint_id = p_endpoint_id
    RETURNING e.* INTO _new;
    RETURN _new;
EXCEPTION
    WHEN check_violation OR not_null_violation OR data_exception THEN
        RAISE EXCEPTION 'an endpoint is invalid: %', SQLERRM USING ERRCODE = 'PJ090';
END;
$$;
