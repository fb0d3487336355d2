-- What the reader of the log does with events of one entity type, as match_events_v1 takes them: those that are for one
-- subscription go to that one, those that are for later are left to match_due_v1, and all others are matched.
CREATE OR REPLACE FUNCTION projections.match_log_v1(
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_whole_topics text[] DEFAULT NULL,
    p_whole_groups integer[] DEFAULT NULL,
    p_whole_subscriptions text[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET plan_cache_mode = 'force_generic_plan'
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _directed record;
    _other record;
    _count bigint := 0;
BEGIN
    IF p_entity_type <> 'published' OR NOT EXISTS (SELECT FROM projections.directed_events) THEN
        RETURN projections.match_events_v1(
            p_entity_type, p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics,
            p_whole_topics, p_whole_groups, p_whole_subscriptions
        );
    END IF;

    WITH directed AS (
        SELECT e.place, d.db_timestamp, d.source_id, d.seq_nr, d.slice, d.subscription_id, d.not_before
        FROM unnest(p_source_ids, p_seq_nrs) WITH ORDINALITY AS e (source_id, seq_nr, place)
        INNER JOIN projections.directed_events AS d ON e.source_id = d.source_id AND e.seq_nr = d.seq_nr
        ORDER BY d.source_id, d.seq_nr
        FOR UPDATE OF d
    )
    SELECT
        array_agg(d.place) AS places,
        array_agg(d.source_id ORDER BY d.place) FILTER (WHERE d.not_before IS NULL) AS source_ids,
        array_agg(d.seq_nr ORDER BY d.place) FILTER (WHERE d.not_before IS NULL) AS seq_nrs,
        array_agg(d.db_timestamp ORDER BY d.place) FILTER (WHERE d.not_before IS NULL) AS db_timestamps,
        array_agg(d.slice ORDER BY d.place) FILTER (WHERE d.not_before IS NULL) AS slices,
        array_agg(d.subscription_id ORDER BY d.place) FILTER (WHERE d.not_before IS NULL) AS subscription_ids
    INTO _directed FROM directed AS d;
    IF _directed.places IS NOT NULL THEN
        -- Whoever comes second removes it: this reader, or match_due_v1.
        DELETE FROM projections.directed_events AS d
        USING unnest(_directed.places) AS p (place)
        WHERE d.source_id = p_source_ids[p.place] AND d.seq_nr = p_seq_nrs[p.place] AND (d.not_before IS NULL OR d.matched);
        UPDATE projections.directed_events AS d SET passed = TRUE
        FROM unnest(_directed.places) AS p (place)
        WHERE d.source_id = p_source_ids[p.place] AND d.seq_nr = p_seq_nrs[p.place];
    END IF;
    IF _directed.source_ids IS NOT NULL THEN
        _count := projections.match_directed_v1(
            _directed.source_ids, _directed.seq_nrs, _directed.db_timestamps, _directed.slices, _directed.subscription_ids
        );
    END IF;
    SELECT
        array_agg(e.source_id ORDER BY e.place) AS source_ids, array_agg(e.seq_nr ORDER BY e.place) AS seq_nrs,
        array_agg(e.db_timestamp ORDER BY e.place) AS db_timestamps, array_agg(e.slice ORDER BY e.place) AS slices,
        array_agg(e.topic ORDER BY e.place) AS topics
    INTO _other
    FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics)
    WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, place)
    WHERE NOT EXISTS (SELECT FROM unnest(_directed.places) AS p (place) WHERE p.place = e.place);
    IF _other.source_ids IS NOT NULL THEN
        _count := _count + projections.match_events_v1(
            p_entity_type, _other.source_ids, _other.seq_nrs, _other.db_timestamps, _other.slices, _other.topics,
            p_whole_topics, p_whole_groups, p_whole_subscriptions
        );
    END IF;
    RETURN _count;
END;
$$;
