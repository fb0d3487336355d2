-- Asks a condition about a number of the events of _next_unasked_v1, writes what matches, and moves its place behind them; returns
-- how many those were. p_page_id and p_place name the first: 0 where it is another by now, where somebody else is at it, or where
-- the condition is stopped. p_error: it is known to fail on them, and why. An event that it fails on is put aside.
CREATE OR REPLACE FUNCTION projections._match_unasked_v1(
    p_condition_id integer, p_page_id bigint, p_place integer, p_count integer, p_error text DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _e record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections unanswered'), p_condition_id) THEN
        RETURN 0;
    END IF;
    SELECT
        array_agg(n.page_id) AS page_ids, array_agg(n.place) AS places, array_agg(n.last) AS last, count(*)::integer AS count,
        array_agg(
            (n.source_id, n.seq_nr, n.db_timestamp, n.slice, n.topic, n.as_of, NULL, n.entity_type)::projections.events_to_match
        ) AS events
    INTO _e FROM projections._next_unasked_v1(p_condition_id, p_count) AS n;
    IF (_e.page_ids[1] = p_page_id AND _e.places[1] = p_place AND _e.count = p_count) IS NOT TRUE THEN
        RETURN 0;
    END IF;
    UPDATE projections.conditions AS c
    SET
        unasked_from = _e.page_ids[_e.count] + CASE WHEN _e.last[_e.count] THEN 1 ELSE 0 END,
        unasked_skip = CASE WHEN _e.last[_e.count] THEN 0 ELSE _e.places[_e.count] END
    WHERE c.condition_id = p_condition_id AND c.quarantined_at IS NULL;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    PERFORM projections._match_events_v1(
        _e.events, p_failed => jsonb_build_object(p_condition_id, p_error), p_behind => p_condition_id
    );
    RETURN _e.count;
END;
$$;
