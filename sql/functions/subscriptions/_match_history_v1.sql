-- Matches events with one subscription that catches up with the past: the page of _next_history_v1 that begins with the event
-- named and has that number of them, and moves its place behind them; returns how many those were. 0 where the page is another
-- by now, or somebody else is at it. p_error: its condition is known to fail on them, and why; it is asked about such an event
-- as about any other that it failed on, for this subscription alone.
CREATE OR REPLACE FUNCTION projections._match_history_v1(
    p_subscription_id bigint, p_source_id text, p_seq_nr bigint, p_count integer, p_error text DEFAULT NULL
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _condition CONSTANT integer := (
        SELECT s.condition_id FROM projections.subscriptions AS s WHERE s.subscription_id = p_subscription_id
    );
    _page record;
BEGIN
    -- rewind_group_v1 has it, too.
    IF NOT pg_try_advisory_xact_lock(hashtext('slice-projections past'), (p_subscription_id & 2147483647)::integer) THEN
        RETURN 0;
    END IF;
    -- No DISTINCT among these: it may sort what all of them are given.
    SELECT
        array_agg(n.source_id) AS source_ids, array_agg(n.seq_nr) AS seq_nrs, array_agg(n.db_timestamp) AS db_timestamps,
        array_agg(n.slice) AS slices, array_agg(
            (n.source_id, n.seq_nr, n.db_timestamp, n.slice, n.topic, n.db_timestamp, p_subscription_id, n.entity_type)::projections.events_to_match
        ) FILTER (WHERE n.topic IS NOT NULL) AS events
    INTO _page FROM projections._next_history_v1(p_subscription_id, p_count) AS n;
    IF (_page.source_ids[1] = p_source_id AND _page.seq_nrs[1] = p_seq_nr AND cardinality(_page.seq_nrs) = p_count) IS NOT TRUE THEN
        RETURN 0;
    END IF;
    UPDATE projections.subscription_history AS h
    SET
        db_timestamp = _page.db_timestamps[p_count], slice = _page.slices[p_count], source_id = _page.source_ids[p_count],
        seq_nr = _page.seq_nrs[p_count], events = h.events + p_count, first_event = coalesce(h.first_event, _page.db_timestamps[1])
    WHERE h.subscription_id = p_subscription_id;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    IF _page.events IS NOT NULL THEN
        PERFORM projections._match_events_v1(
            _page.events, ARRAY(SELECT i FROM projections._history_interests_v1(p_subscription_id, _page.events) AS i),
            jsonb_build_object(coalesce(_condition, 0), p_error), _condition
        );
    END IF;
    RETURN p_count;
END;
$$;
