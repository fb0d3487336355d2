-- Matches published events whose time has come, the earliest first; returns how many events those were. Any number may call
-- it at once: each event is somebody's. The role needs no claim: the row of the event is what both sides lock.
CREATE OR REPLACE FUNCTION projections.match_due_v1(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _due projections.directed_events[];
    _to_one record;
    _to_all record;
BEGIN
    SELECT array_agg(d ORDER BY d.not_before, d.source_id, d.seq_nr) INTO _due
    FROM (
        SELECT d.* FROM projections.directed_events AS d
        WHERE NOT d.matched AND d.not_before <= clock_timestamp()
        ORDER BY d.not_before LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS d;
    IF _due IS NULL THEN
        RETURN 0;
    END IF;
    DELETE FROM projections.directed_events AS d USING unnest(_due) AS u
    WHERE d.source_id = u.source_id AND d.seq_nr = u.seq_nr AND d.passed;
    UPDATE projections.directed_events AS d SET matched = TRUE FROM unnest(_due) AS u
    WHERE d.source_id = u.source_id AND d.seq_nr = u.seq_nr;

    SELECT
        array_agg(u.source_id) AS source_ids, array_agg(u.seq_nr) AS seq_nrs, array_agg(u.db_timestamp) AS db_timestamps,
        array_agg(u.slice) AS slices, array_agg(u.subscription_id) AS subscription_ids
    INTO _to_one FROM unnest(_due) AS u WHERE u.subscription_id IS NOT NULL;
    IF _to_one.source_ids IS NOT NULL THEN
        PERFORM projections.match_directed_v1(
            _to_one.source_ids, _to_one.seq_nrs, _to_one.db_timestamps, _to_one.slices, _to_one.subscription_ids
        );
    END IF;
    SELECT
        array_agg(u.source_id) AS source_ids, array_agg(u.seq_nr) AS seq_nrs, array_agg(u.db_timestamp) AS db_timestamps,
        array_agg(u.slice) AS slices, array_agg(u.topic) AS topics
    INTO _to_all FROM unnest(_due) AS u WHERE u.subscription_id IS NULL;
    IF _to_all.source_ids IS NOT NULL THEN
        PERFORM projections.match_events_v1(
            'published', _to_all.source_ids, _to_all.seq_nrs, _to_all.db_timestamps, _to_all.slices, _to_all.topics
        );
    END IF;
    RETURN cardinality(_due);
END;
$$;
