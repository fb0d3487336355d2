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
    _size bigint;
    _rows integer := 0;
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
    FOR _size IN
        -- Measured after they were sorted: what is left out is not unpacked.
        SELECT projections.event_bytes_v1(e.payload, e.metadata)
        FROM (
            SELECT e.payload, e.metadata
            FROM unnest(_page) AS m
            LEFT JOIN projections.events AS e
                ON m.source_id = e.source_id AND m.seq_nr = e.seq_nr AND m.db_timestamp = e.db_timestamp
                AND e.db_timestamp BETWEEN _oldest AND _newest
            ORDER BY m.match_id
            OFFSET 0
        ) AS e
    LOOP
        p_bytes := p_bytes - _size;
        _rows := _rows + 1;
        EXIT WHEN p_bytes <= 0;
    END LOOP;
    RETURN QUERY SELECT
        m.match_id, m.subscription_ids, m.source_id, m.seq_nr, m.db_timestamp, m.slice,
        e.event_id, e.entity_type, e.event_type, e.version, e.payload::text, e.metadata::text, e.tags,
        m.matched_at, coalesce(p_bytes <= 0, FALSE)
    FROM unnest(CASE WHEN p_bytes <= 0 THEN _page[1:_rows] ELSE _page END) AS m
    LEFT JOIN projections.events AS e
        ON m.source_id = e.source_id AND m.seq_nr = e.seq_nr AND m.db_timestamp = e.db_timestamp
        AND e.db_timestamp BETWEEN _oldest AND _newest
    ORDER BY m.match_id;
END;
$$;
