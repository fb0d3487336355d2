-- Subscribes a group, which is made when it is not known, to events; returns the subscription. Asking for the same again
-- returns the same one, kept for the longer of both times (NULL: without limit).
--
-- p_condition is a boolean expression over e, the event (a row of projections.matchable_events), and s, the subscription
-- (s.params); NULL: none. p_topics are event types, and patterns of them as _topic_patterns_v1 takes them; p_entity_types are kinds of
-- sources.
--
-- It gets every event that is committed after it; of those that are in flight just now some may be committed before. With p_start
-- it gets all from that time on ('-infinity': from the first on), each once and in the order of its source: it catches up first,
-- alongside what matches the log. NULL is the start of the group, infinity none. One that is there already starts where it did; a group
-- that only listens has no past.
-- Raises PJ080 for a condition, PJ081 for anything else that is refused.
CREATE OR REPLACE FUNCTION projections.subscribe_v1(
    p_group text,
    p_condition text DEFAULT NULL,
    p_params jsonb DEFAULT '{}',
    p_expires_after interval DEFAULT NULL,
    p_topics text[] DEFAULT NULL,
    p_entity_types text[] DEFAULT NULL,
    p_reliable boolean DEFAULT TRUE,
    p_start timestamptz DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
AS $$
DECLARE
    _group integer;
    _reliable boolean;
    _start timestamptz;
    _condition integer;
    _topics text[] := (SELECT array_agg(DISTINCT t.topic ORDER BY t.topic) FROM unnest(p_topics) AS t (topic));
    _patterns text[];
    _matched record;
    _identity jsonb;
    _id bigint;
    _since timestamptz;
BEGIN
    IF p_params IS NULL OR jsonb_typeof(p_params) <> 'object' THEN
        RAISE EXCEPTION 'params is a JSON object, not %', coalesce(jsonb_typeof(p_params), 'NULL') USING ERRCODE = 'PJ081';
    ELSIF pg_column_size(p_params) > 65536 THEN
        RAISE EXCEPTION 'params takes at most 64 KiB, not %', pg_size_pretty(pg_column_size(p_params)::bigint)
        USING ERRCODE = 'PJ081';
    ELSIF p_topics IS NOT NULL AND (_topics IS NULL OR array_position(_topics, NULL) IS NOT NULL OR '' = ANY (_topics)) THEN
        RAISE EXCEPTION 'topics names at least one, and none that is empty' USING ERRCODE = 'PJ081', HINT = 'Leave it out for all.';
    ELSIF cardinality(p_entity_types) = 0 OR array_position(p_entity_types, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'entity_types names at least one' USING ERRCODE = 'PJ081', HINT = 'Leave it out for all.';
    ELSIF EXISTS (SELECT FROM unnest(p_entity_types) AS t (type) WHERE strpos(t.type, '*') > 0) THEN
        RAISE EXCEPTION 'entity_types has %, and * stands for nothing in it: leave entity_types out for all, or name them',
            (SELECT quote_literal(min(t.type)) FROM unnest(p_entity_types) AS t (type) WHERE strpos(t.type, '*') > 0)
        USING ERRCODE = 'PJ081';
    ELSIF p_expires_after <= interval '0' THEN
        RAISE EXCEPTION 'expires_after is longer than 0, not %', p_expires_after USING ERRCODE = 'PJ081';
    ELSIF p_start > clock_timestamp() AND p_start < 'infinity' THEN
        RAISE EXCEPTION 'start lies in the future: %', p_start USING ERRCODE = 'PJ081', HINT = 'Leave it out for what comes from now on.';
    END IF;
    PERFORM projections._topic_patterns_v1(_topics);  -- names, too
    _group := projections.create_group_v1(p_group, p_reliable);
    SELECT g.reliable, coalesce(p_start, g.starts_at) INTO _reliable, _start
    FROM projections.subscription_groups AS g WHERE g.group_id = _group;
    IF _start < 'infinity' AND NOT _reliable THEN
        RAISE EXCEPTION 'group % only listens: it gets what comes, and nothing of the past', quote_literal(p_group)
        USING ERRCODE = 'PJ081', HINT = 'Leave start out.';
    END IF;
    IF p_condition IS NOT NULL THEN
        _condition := projections._condition_id_v1(p_condition);
    END IF;
    _identity := jsonb_build_object(
        'group', _group, 'condition', _condition, 'params', p_params, 'topics', to_jsonb(_topics),
        'entity_types', (SELECT jsonb_agg(DISTINCT t.type ORDER BY t.type) FROM unnest(p_entity_types) AS t (type))
    );
    IF strpos(array_to_string(_topics, ''), '*') > 0 THEN
        _patterns := _topics;
        _topics := NULL;
    END IF;
    SELECT * INTO _matched FROM projections._topic_patterns_v1(_patterns);
    _since := projections._in_flight_since_v1();

    INSERT INTO projections.subscriptions (
        group_id, condition_id, params, topics, patterns, likes, regexes, entity_types, expires_after, since, identity,
        starts_at
    )
    VALUES (
        _group, _condition, p_params, _topics, _patterns, _matched.likes, _matched.regexes, p_entity_types,
        p_expires_after, CASE WHEN _start < 'infinity' THEN 'infinity' ELSE _since END, _identity,
        CASE WHEN _start < 'infinity' THEN greatest(_start, '1970-01-01T00:00:00Z') END
    )
    ON CONFLICT DO NOTHING RETURNING subscription_id INTO _id;
    IF FOUND THEN
        INSERT INTO projections.subscription_topics (topic, subscription_id)
        SELECT t.topic, _id FROM unnest(_topics) AS t (topic);
    ELSE
        UPDATE projections.subscriptions AS s
        SET
            active_at = clock_timestamp(),
            expires_after = CASE
                WHEN s.expires_after IS NOT NULL AND p_expires_after IS NOT NULL THEN greatest(s.expires_after, p_expires_after)
            END
        WHERE s.identity = _identity RETURNING s.subscription_id INTO _id;
    END IF;
    IF _id IS NULL THEN
        RAISE EXCEPTION 'the subscription was removed while it was asked for' USING ERRCODE = '40001', HINT = 'Ask again.';
    END IF;
    RETURN _id;
END;
$$;
