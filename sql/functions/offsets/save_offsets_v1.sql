-- Stores what a batch has handled, in the transaction of its effects. Compare and set: the range, and each source, must
-- stand where the worker remembers them. Sources that have an offset come first, each with its number in p_previous; the
-- others have none, and their slices are in p_slices. p_handled_until is the newest time of all that was handled, where times of a
-- source may run against its numbers: then it may be none of p_timestamps. What was read of a database and not stored yet shows in
-- no count: see _same_generation_v1. Returns whether somebody waits for what is handled (_handled_v1).
--
-- Raises PJ010 when the range is no longer held with this epoch, PJ011 when a source does not stand where the batch has
-- it, PJ012 when this is not the transaction that the batch began, PJ013 when the range is not as it was stored last,
-- because the database went back in time: each rolls the effects back.
CREATE OR REPLACE FUNCTION projections.save_offsets_v1(
    p_projection_id integer,
    p_min_slice integer,
    p_epoch bigint,
    p_owner text,
    p_commits bigint,
    p_answered bigint,
    p_timeline integer,
    p_started_at timestamptz,
    p_batch text,
    p_horizon timestamptz,
    p_import_id bigint,
    p_source_ids text[],
    p_slices smallint[],
    p_previous bigint[],
    p_seq_nrs bigint[],
    p_timestamps timestamptz[],
    p_handled bigint,
    p_handled_until timestamptz DEFAULT NULL
)
RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- By the key, whatever the statistics say of a table that is written all the time.
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
DECLARE
    _all CONSTANT integer := cardinality(p_source_ids);
    _known CONSTANT integer := cardinality(p_previous);
    -- Bytes. An offset takes some 100, so that one pass over a table that is as small as the batch costs less than to look each up.
    _all_offsets CONSTANT bigint := pg_relation_size('projections.source_offsets');
    _saved bigint := 0;
    _new bigint;
BEGIN
    IF current_setting('projections.batch', TRUE) IS DISTINCT FROM p_batch THEN
        RAISE EXCEPTION 'the handler ended the transaction of its batch' USING ERRCODE = 'PJ012';
    END IF;
    UPDATE projections.projection_ranges AS r
    SET
        horizon = p_horizon, import_id = p_import_id, handled = r.handled + p_handled,
        handled_until = greatest(r.handled_until, p_handled_until, (SELECT max(t.at) FROM unnest(p_timestamps) AS t (at))),
        handled_at = CASE WHEN p_handled > 0 THEN clock_timestamp() ELSE r.handled_at END,
        failures = 0, error = NULL, restarts_at = NULL, commits = r.commits + 1
    WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice
    AND r.epoch = p_epoch AND r.owner = p_owner AND r.commits = p_commits
    AND (SELECT projections._same_generation_v1(p_owner, p_answered, p_timeline, p_started_at));
    IF NOT FOUND THEN
        -- Epochs only rise, and each has one owner, whose count nobody else moves.
        IF EXISTS (
            SELECT FROM projections.projection_ranges AS r
            WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice
            AND (r.epoch < p_epoch OR (r.epoch = p_epoch AND r.owner IS NOT NULL))
        ) THEN
            RAISE EXCEPTION 'the slice range from % is not as it was stored last: the database went back in time', p_min_slice
            USING ERRCODE = 'PJ013';
        END IF;
        RAISE EXCEPTION 'the slice range from % is no longer held with epoch %', p_min_slice, p_epoch USING ERRCODE = 'PJ010';
    END IF;
    -- From here only COMMIT is left. A client that is gone without a word (stopped, cut off) must not keep the row above
    -- locked, and with it the range from whoever takes over.
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', TRUE);
    -- Apart, for most sources are known: updating those alone costs a quarter less than an upsert of all.
    -- The row above is locked, so no other holder of this range comes in between.
    IF _all_offsets < _known * 256 THEN
        _saved := projections._save_most_offsets_v1(
            p_projection_id, p_source_ids[:_known], p_previous, p_seq_nrs[:_known], p_timestamps[:_known]
        );
    ELSIF _known > 0 THEN
        -- The key comes from one side as a whole: a plan that begins with the table, which it may take for empty, would compare
        -- each row of the projection with each source.
        UPDATE projections.source_offsets AS o
        SET seq_nr = s.seq_nr, db_timestamp = s.db_timestamp
        FROM (
            SELECT p_projection_id AS projection_id, s.source_id COLLATE "C" AS source_id, s.previous, s.seq_nr, s.db_timestamp
            FROM unnest(p_source_ids[:_known], p_previous, p_seq_nrs[:_known], p_timestamps[:_known])
                AS s (source_id, previous, seq_nr, db_timestamp)
            OFFSET 0
        ) AS s
        WHERE o.projection_id = s.projection_id AND o.source_id = s.source_id AND o.seq_nr = s.previous;
        GET DIAGNOSTICS _saved = ROW_COUNT;
    END IF;
    IF _saved < _known THEN
        _saved := _saved + projections._save_evicted_offsets_v1(
            p_projection_id, p_source_ids[:_known], p_previous, p_seq_nrs[:_known], p_timestamps[:_known]
        );
    END IF;
    IF _known < _all THEN
        BEGIN  -- ON CONFLICT would take two to three times as long
            INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
            SELECT p_projection_id, s.source_id, s.slice, s.seq_nr, s.db_timestamp
            FROM unnest(p_source_ids[_known + 1:], p_slices, p_seq_nrs[_known + 1:], p_timestamps[_known + 1:])
                AS s (source_id, slice, seq_nr, db_timestamp);
        EXCEPTION WHEN unique_violation THEN
            RAISE EXCEPTION 'a source that is new in this batch has an offset already' USING ERRCODE = 'PJ011';
        END;
        GET DIAGNOSTICS _new = ROW_COUNT;
        _saved := _saved + _new;
    END IF;
    IF _saved <> _all THEN
        RAISE EXCEPTION '% of % sources do not stand where this batch begins', _all - _saved, _all USING ERRCODE = 'PJ011';
    END IF;
    RETURN (
        SELECT p.waited_until > clock_timestamp() FROM projections.projections AS p WHERE p.projection_id = p_projection_id
    );
END;
$$;
