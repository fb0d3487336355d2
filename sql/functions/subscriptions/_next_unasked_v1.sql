-- The events that a condition has not been asked about, the next ones in their order, over as many pages as that takes; none while
-- it is stopped. page_id and place name an event, "last" is TRUE of the last of a page. What it does not want of a page has no
-- topic, and neither has what was dropped with its partition.
CREATE OR REPLACE FUNCTION projections._next_unasked_v1(p_condition_id integer, p_limit integer)
RETURNS TABLE (
    page_id bigint,
    place integer,
    last boolean,
    entity_type text,
    source_id text,
    seq_nr bigint,
    db_timestamp timestamptz,
    slice smallint,
    topic text,
    as_of timestamptz
)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
-- Planned as _events_by_keys_v1.
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET enable_sort = off
SET enable_nestloop = on
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _settled CONSTANT bigint := projections.settled_matches_v1();
    _left bigint := p_limit;
    _from bigint;
    _skip integer;
    -- What it wants: all of some types, and some topics.
    _open text[];
    _types text[];
    _topics text[];
    _page record;
    _found bigint;
BEGIN
    SELECT c.unasked_from, c.unasked_skip INTO _from, _skip
    FROM projections.conditions AS c WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NULL;
    FOR _page IN
        SELECT u.* FROM projections.unasked AS u
        WHERE u.page_id >= _from AND u.page_id <= _settled AND p_condition_id = ANY (u.condition_ids)
        ORDER BY u.page_id
    LOOP
        EXIT WHEN _left <= 0;
        SELECT
            array_agg(w.entity_type) FILTER (WHERE w.topic IS NULL), array_agg(w.entity_type) FILTER (WHERE w.topic IS NOT NULL),
            array_agg(w.topic) FILTER (WHERE w.topic IS NOT NULL)
        INTO _open, _types, _topics
        FROM unnest(_page.condition_ids, _page.entity_types, _page.topics) AS w (condition_id, entity_type, topic)
        WHERE w.condition_id = p_condition_id;
        RETURN QUERY
        SELECT
            _page.page_id, k.place::integer, k.place = cardinality(_page.source_ids), e.entity_type, k.source_id, k.seq_nr, k.db_timestamp,
            e.slice, e.event_type, coalesce(k.as_of, k.db_timestamp)
        FROM unnest(_page.source_ids, _page.seq_nrs, _page.db_timestamps, _page.as_of)
        WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, as_of, place)
        LEFT JOIN LATERAL (
            SELECT e.slice, e.event_type, e.entity_type FROM projections.events AS e
            WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
            AND e.db_timestamp BETWEEN _page.since AND _page.until
            AND (
                e.entity_type = ANY (_open)
                OR (e.entity_type, e.event_type) IN (SELECT w.entity_type, w.topic FROM unnest(_types, _topics) AS w (entity_type, topic))
            )
            LIMIT 1
        ) AS e ON TRUE
        WHERE k.place > CASE WHEN _page.page_id = _from THEN _skip ELSE 0 END
        ORDER BY k.place LIMIT _left;
        GET DIAGNOSTICS _found = ROW_COUNT;
        _left := _left - _found;
    END LOOP;
END;
$$;
