-- Matches published events whose time has come, the earliest first; returns how many events those were. Any number may call
-- it at once: each event is somebody's. The role needs no claim: the row of the event is what both sides lock. They are for the
-- subscriptions that were there when they were due. p_failed is as for _match_events_v1.
CREATE OR REPLACE FUNCTION projections._match_due_v1(p_limit integer DEFAULT 1000, p_failed jsonb DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _due projections.events_to_match[];
    _rows tid[];
BEGIN
    SELECT
        array_agg(
            (
                d.source_id, d.seq_nr, d.db_timestamp, d.slice, CASE WHEN d.subscription_id IS NULL THEN d.topic END,
                greatest(d.not_before, d.db_timestamp), d.subscription_id, 'published'
            )::projections.events_to_match
            ORDER BY d.not_before, d.source_id, d.seq_nr
        ),
        array_agg(d.ctid)
    INTO _due, _rows
    FROM (
        SELECT d.ctid, d.* FROM projections.directed_events AS d
        WHERE NOT d.matched AND d.not_before <= clock_timestamp()
        ORDER BY d.not_before LIMIT p_limit
        FOR UPDATE SKIP LOCKED
    ) AS d;
    IF _due IS NULL THEN
        RETURN 0;
    END IF;
    -- They are locked: they stay where they are.
    DELETE FROM projections.directed_events AS d WHERE d.ctid = ANY (_rows) AND d.passed;
    UPDATE projections.directed_events AS d SET matched = TRUE WHERE d.ctid = ANY (_rows);
    PERFORM projections._match_events_v1(_due, p_failed => p_failed, p_late => TRUE);
    RETURN cardinality(_due);
END;
$$;
