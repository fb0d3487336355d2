-- Of each source of a range of slices, the last event up to a time, and how many events it has up to there. Where the history of
-- sources is whole, that is the number of its last event, and only sources with events after that time are looked up in the log;
-- where first events may be gone (p_counted), all events are counted. p_entity_types NULL: all.
CREATE OR REPLACE FUNCTION projections._last_events_v1(
    p_entity_types text[], p_min_slice integer, p_max_slice integer, p_until timestamptz, p_counted boolean
)
RETURNS TABLE (source_id text, slice smallint, seq_nr bigint, db_timestamp timestamptz, events bigint)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF p_counted THEN
        RETURN QUERY SELECT e.source_id, min(e.slice), max(e.seq_nr), max(e.db_timestamp), count(*)
        FROM projections.events AS e
        WHERE (p_entity_types IS NULL OR e.entity_type = ANY (p_entity_types))
        AND e.slice BETWEEN p_min_slice AND p_max_slice AND e.db_timestamp <= p_until
        GROUP BY e.source_id;
        RETURN;
    END IF;
    RETURN QUERY SELECT s.source_id, s.slice, e.seq_nr, e.db_timestamp, e.seq_nr
    FROM projections.sources AS s
    CROSS JOIN LATERAL (
        SELECT s.seq_nr, s.db_timestamp WHERE s.db_timestamp <= p_until
        UNION ALL (
            SELECT e.seq_nr, e.db_timestamp FROM projections.events AS e
            WHERE s.db_timestamp > p_until AND e.source_id = s.source_id AND e.db_timestamp <= p_until
            ORDER BY e.seq_nr DESC LIMIT 1
        )
    ) AS e
    WHERE (p_entity_types IS NULL OR s.entity_type = ANY (p_entity_types))
    AND s.slice BETWEEN p_min_slice AND p_max_slice AND s.seq_nr > 0;
END;
$$;
