-- The next events that a subscription which catches up with the past is to look at, of all its entity types, in the order of the
-- log: as far as what matches has passed them, and nothing older can appear any more. With p_tail all that there are; passed says
-- of each whether what matches has passed it: if not, it will. What was published for one subscription, or for later, has no topic:
-- it is not history. Nor are messages that were published before the schema's version 3, of which nobody knows for which group they were.
CREATE OR REPLACE FUNCTION projections._next_history_v1(p_subscription_id bigint, p_limit integer, p_tail boolean DEFAULT FALSE)
RETURNS TABLE (entity_type text, source_id text, seq_nr bigint, db_timestamp timestamptz, slice smallint, topic text, passed boolean)
LANGUAGE plpgsql
VOLATILE -- read_events_by_slices_v1 says why
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    -- Before the events are read.
    _until CONSTANT timestamptz := CASE WHEN p_tail THEN '9999-01-01T00:00:00Z' ELSE projections._in_flight_since_v1() END;
    _published CONSTANT timestamptz := (
        SELECT v.installed_at FROM projections.schema_versions AS v
        WHERE v.version = 3 AND v.installed_at > (SELECT min(o.installed_at) FROM projections.schema_versions AS o)
    );
    _at record;
BEGIN
    SELECT h.*, s.entity_types, p.projection_id, p.evicted_before, (
        SELECT min(r.horizon) FROM projections.projection_ranges AS r WHERE r.projection_id = p.projection_id
    ) AS horizon
    INTO _at
    FROM projections.subscription_history AS h
    INNER JOIN projections.subscriptions AS s ON h.subscription_id = s.subscription_id
    INNER JOIN projections.projections AS p ON p.name = 'matching'
    WHERE h.subscription_id = p_subscription_id;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    RETURN QUERY
    SELECT n.entity_type, n.source_id, n.seq_nr, n.db_timestamp, n.slice, n.topic, n.passed
    FROM (
        SELECT
            k.*, CASE WHEN k.entity_type <> 'published' OR coalesce(k.db_timestamp >= _published, TRUE) AND NOT EXISTS (
                SELECT FROM projections.events AS e
                WHERE e.source_id = k.source_id AND e.seq_nr = k.seq_nr AND e.db_timestamp = k.db_timestamp
                AND 'directed' = ANY (e.tags)
            ) THEN k.event_type END AS topic,
            p.passed, bool_and(p.passed) OVER (ORDER BY k.place ROWS UNBOUNDED PRECEDING) AS all_passed
        FROM projections._read_keys_by_slices_v1(
            _at.entity_types, 0, 1023, _at.db_timestamp, _at.slice, _at.source_id, _at.seq_nr, _until, p_limit, TRUE
        ) WITH ORDINALITY AS k (source_id, seq_nr, db_timestamp, slice, event_type, entity_type, place)
        CROSS JOIN LATERAL (
            SELECT k.db_timestamp < _at.horizon OR EXISTS (
                SELECT FROM projections.projection_ranges AS r
                WHERE r.projection_id = _at.projection_id AND k.slice BETWEEN r.min_slice AND r.max_slice
                AND k.db_timestamp < r.horizon
            ) OR coalesce(
                k.seq_nr <= (
                    SELECT o.seq_nr FROM projections.source_offsets AS o
                    WHERE o.projection_id = _at.projection_id AND o.source_id = k.source_id
                ),
                k.db_timestamp < _at.evicted_before
            ) AS passed
        ) AS p
    ) AS n
    WHERE p_tail OR n.all_passed
    ORDER BY n.place;
END;
$$;
