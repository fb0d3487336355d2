-- What outcomes of attempts, in their order, mean for their endpoint: its count of failures, its circuit, and whether it is
-- disabled. At half, 70 %, 90 % and all of what disables it, the journal gets an event, once.
CREATE OR REPLACE FUNCTION projections._judge_endpoint_v1(p_endpoint_id text, p_verdicts text[], p_pause interval, p_disable boolean)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _now timestamptz := clock_timestamp();
    _endpoint projections.webhook_endpoints;
    _circuit projections.webhook_circuits;
    _success integer := (SELECT max(v.place) FROM unnest(p_verdicts) WITH ORDINALITY AS v (verdict, place) WHERE v.verdict = 'done');
    _before integer;
    _most numeric;  -- it may be as large as it likes
    _longest numeric;  -- seconds
    _percent integer;
    _policy jsonb;
    _pause jsonb;
BEGIN
    SELECT e.* INTO _endpoint FROM projections.webhook_endpoints AS e WHERE e.endpoint_id = p_endpoint_id;
    SELECT c.* INTO _circuit FROM projections.webhook_circuits AS c WHERE c.endpoint_id = p_endpoint_id FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    IF _success IS NOT NULL THEN
        _circuit.failures := 0;
        _circuit.failing_since := NULL;
        IF _circuit.opened > 0 THEN
            _circuit.opened := 0;
            _circuit.blocked_until := least(_circuit.blocked_until, _now);
        END IF;  -- else it has asked for a pause, whatever was on its way then has come to
    END IF;
    _before := _circuit.failures;
    _circuit.failures := _before + cardinality(p_verdicts) - coalesce(_success, 0);
    IF _circuit.failures > 0 THEN
        _circuit.failing_since := coalesce(_circuit.failing_since, _now);
    END IF;
    IF _circuit.failures > _before AND _circuit.blocked_until <= _now THEN
        _policy := projections._policy_within_limits_v1(_endpoint.policy);
        _pause := _policy -> 'breaker_pause';
        IF _circuit.failures >= (_policy ->> 'breaker_failures')::numeric THEN
            _circuit.blocked_until := _now + least(
                make_interval(secs => (_pause ->> 'first')::double precision * 2 ^ least(_circuit.opened, 20)),
                make_interval(secs => (_pause ->> 'longest')::double precision)
            ) * (1 + (_pause ->> 'jitter')::double precision * (2 * random() - 1));
            _circuit.opened := _circuit.opened + 1;
        END IF;
    END IF;
    _circuit.blocked_until := greatest(_circuit.blocked_until, _now + p_pause);
    UPDATE projections.webhook_circuits AS c
    SET failures = _circuit.failures, failing_since = _circuit.failing_since, opened = _circuit.opened,
        blocked_until = _circuit.blocked_until,
        dead_told_at = CASE WHEN 'dead' = ANY (p_verdicts) AND c.dead_told_at < _now - interval '1 hour' THEN _now ELSE c.dead_told_at END
    WHERE c.endpoint_id = p_endpoint_id;
    IF 'dead' = ANY (p_verdicts) AND _circuit.dead_told_at < _now - interval '1 hour' THEN
        PERFORM projections._tell_of_endpoint_v1(p_endpoint_id, _endpoint.tenant, 'WebhookDeliveryDead', '{}');
    END IF;
    _most := (_endpoint.policy ->> 'disable_after_failures')::numeric;
    _longest := (_endpoint.policy ->> 'disable_after')::numeric;
    SELECT max(t.percent) INTO _percent FROM (VALUES (50), (70), (90), (100)) AS t (percent)
    WHERE _before * 100 < _most * t.percent AND _circuit.failures * 100 >= _most * t.percent;
    IF _percent IS NOT NULL THEN
        PERFORM projections._tell_of_endpoint_v1(
            p_endpoint_id, _endpoint.tenant, 'WebhookEndpointFailing',
            json_build_object('percent', _percent, 'failures', _circuit.failures, 'failing_since', _circuit.failing_since)
        );
    END IF;
    IF _endpoint.state <> 'disabled' AND (p_disable OR _circuit.failures >= _most OR extract(EPOCH FROM _now - _circuit.failing_since) >= _longest) THEN
        PERFORM projections._set_endpoint_state_v1(
            NULL, p_endpoint_id, 'disabled',
            CASE
                WHEN p_disable THEN 'it answered 410 Gone'
                WHEN _circuit.failures >= _most THEN format('%s attempts in a row failed', _circuit.failures)
                ELSE format('every attempt since %s failed', date_trunc('second', _circuit.failing_since))
            END
        );
    END IF;
END;
$$;
