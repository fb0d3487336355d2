-- The next matches of a range of a group after a cursor, in their order, with their events; those of events that were
-- dropped have none; where subscriptions are given, only theirs. Reading claims and moves nothing: move_cursor_v1 does, when
-- what was read is handled. p_until is what settled_matches_v1 returns, asked in a statement before.
-- A page is bounded as that of read_events_by_slices_v1: "more" on the last match of one that p_bytes has ended.
CREATE OR REPLACE FUNCTION projections.read_next_v1(
    p_group text,
    p_min_slice integer,
    p_max_slice integer,
    p_after bigint,
    p_until bigint,
    p_limit integer,
    p_subscription_ids bigint[] DEFAULT NULL,
    p_bytes bigint DEFAULT 8388608
)
RETURNS TABLE (
    match_id bigint,
    subscription_ids bigint[],
    source_id text,
    seq_nr bigint,
    db_timestamp timestamptz,
    slice smallint,
    event_id uuid,
    entity_type text,
    event_type text,
    version smallint,
    payload text,
    metadata text,
    tags text[],
    matched_at timestamptz,
    more boolean
)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_material = off
SET enable_sort = off
AS $$
#variable_conflict use_column
DECLARE
    _page projections.matches[];
    _oldest timestamptz;
    _newest timestamptz;
BEGIN
    IF coalesce(p_limit, 0) < 1 THEN
        RAISE EXCEPTION 'a page has 1 match or more, not %', coalesce(p_limit::text, 'NULL') USING ERRCODE = 'PJ081';
    END IF;
    _page := ARRAY(
        SELECT m FROM projections.matches AS m
        WHERE m.group_id = (SELECT g.group_id FROM projections.subscription_groups AS g WHERE g.name = p_group)
        AND m.match_id > p_after AND m.match_id <= p_until
        AND m.slice BETWEEN p_min_slice AND p_max_slice
        AND (p_subscription_ids IS NULL OR m.subscription_ids && p_subscription_ids)
        ORDER BY m.group_id, m.match_id
        LIMIT p_limit
    );
    SELECT min(m.db_timestamp), max(m.db_timestamp) INTO _oldest, _newest FROM unnest(_page) AS m;
    -- What follows is planned with these times as values: no partition of events of another time is opened.
    PERFORM set_config('plan_cache_mode', 'force_custom_plan', TRUE);
    RETURN QUERY SELECT
        e.match_id, e.subscription_ids, e.source_id, e.seq_nr, e.db_timestamp, e.slice,
        e.event_id, e.entity_type, e.event_type, e.version, e.payload::text, e.metadata::text, e.tags,
        e.matched_at, coalesce(e.total >= p_bytes, FALSE)
    FROM (
        SELECT
            m.*, e.event_id, e.entity_type, e.event_type, e.version, e.payload, e.metadata, e.tags, e.bytes,
            sum(e.bytes) OVER (ORDER BY m.match_id ROWS UNBOUNDED PRECEDING) AS total
        FROM unnest(_page) AS m
        LEFT JOIN LATERAL (
            SELECT e.*, projections._event_bytes_v1(e.payload, e.metadata) AS bytes
            FROM projections.events AS e
            WHERE e.source_id = m.source_id AND e.seq_nr = m.seq_nr AND e.db_timestamp = m.db_timestamp
            AND e.db_timestamp BETWEEN _oldest AND _newest
            LIMIT 1
        ) AS e ON TRUE
    ) AS e
    -- A match whose event was dropped takes nothing.
    WHERE (e.total - coalesce(e.bytes, 0) < p_bytes) IS NOT FALSE
    ORDER BY e.match_id;
END;
$$;
