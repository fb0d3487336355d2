-- Matches published events whose time has come, the earliest first; returns how many events those were. Any number may call
-- it at once: each event is somebody's. The role needs no claim: the row of the event is what both sides lock. They are for the
-- subscriptions that were there when they were due. p_failed and p_errors are as for match_events_v1.
CREATE OR REPLACE FUNCTION projections.match_due_v1(
    p_limit integer DEFAULT 1000, p_failed integer[] DEFAULT NULL, p_errors text[] DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _due projections.directed_events[];
    _events record;
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
    -- They are locked above: they stay where they are.
    DELETE FROM projections.directed_events AS d
    WHERE d.ctid = ANY (ARRAY(
        SELECT f.ctid FROM unnest(_due) AS u CROSS JOIN LATERAL (
            SELECT f.ctid FROM projections.directed_events AS f
            WHERE f.source_id = u.source_id AND f.seq_nr = u.seq_nr AND f.passed LIMIT 1
        ) AS f
    ));
    UPDATE projections.directed_events AS d SET matched = TRUE
    WHERE d.ctid = ANY (ARRAY(
        SELECT f.ctid FROM unnest(_due) AS u CROSS JOIN LATERAL (
            SELECT f.ctid FROM projections.directed_events AS f
            WHERE f.source_id = u.source_id AND f.seq_nr = u.seq_nr LIMIT 1
        ) AS f
    ));

    SELECT
        array_agg(u.source_id) AS source_ids, array_agg(u.seq_nr) AS seq_nrs, array_agg(u.db_timestamp) AS db_timestamps,
        array_agg(u.slice) AS slices, array_agg(CASE WHEN u.subscription_id IS NULL THEN u.topic END) AS topics,
        array_agg(u.subscription_id) AS subscription_ids,
        array_agg(greatest(u.not_before, u.db_timestamp)) AS as_of
    INTO _events FROM unnest(_due) AS u;
    PERFORM projections.match_events_v1(
        'published', _events.source_ids, _events.seq_nrs, _events.db_timestamps, _events.slices, _events.topics,
        p_to => _events.subscription_ids, p_as_of => _events.as_of, p_failed => p_failed, p_errors => p_errors
    );
    RETURN cardinality(_due);
END;
$$;
