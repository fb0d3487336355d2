-- Stores what a batch has handled, in the transaction of its effects.
--
-- Raises PJ010 when the range is no longer held with this epoch, PJ011 when a source was already at or past its
-- number, PJ012 when this is not the transaction that the batch began: each rolls the effects back.
CREATE OR REPLACE FUNCTION projections.save_offsets_v1(
    p_projection_id integer,
    p_min_slice integer,
    p_epoch bigint,
    p_batch text,
    p_horizon timestamptz,
    p_import_id bigint,
    p_source_ids text[],
    p_slices smallint[],
    p_seq_nrs bigint[],
    p_timestamps timestamptz[],
    p_handled bigint
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
-- By the key, whatever the statistics say of a table that is written all the time.
SET plan_cache_mode = 'force_generic_plan'
AS $$
DECLARE
    _saved bigint;
    _new bigint;
BEGIN
    IF current_setting('projections.batch', TRUE) IS DISTINCT FROM p_batch THEN
        RAISE EXCEPTION 'the handler ended the transaction of its batch' USING ERRCODE = 'PJ012';
    END IF;
    UPDATE projections.projection_ranges AS r
    SET
        horizon = p_horizon, import_id = p_import_id, handled = r.handled + p_handled,
        handled_until = greatest(r.handled_until, (SELECT max(t.at) FROM unnest(p_timestamps) AS t (at))),
        handled_at = CASE WHEN p_handled > 0 THEN clock_timestamp() ELSE r.handled_at END,
        failures = 0, error = NULL, restarts_at = NULL
    WHERE r.projection_id = p_projection_id AND r.min_slice = p_min_slice AND r.epoch = p_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the slice range from % is no longer held with epoch %', p_min_slice, p_epoch USING ERRCODE = 'PJ010';
    END IF;
    -- From here only COMMIT is left. A client that is gone without a word (stopped, cut off) must not keep the row above
    -- locked, and with it the range from whoever takes over.
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', TRUE);
    -- Two statements: most sources are known, and updating those alone costs a quarter less than an upsert of all.
    -- The row above is locked, so no other holder of this range comes in between.
    UPDATE projections.source_offsets AS o
    SET seq_nr = s.seq_nr, db_timestamp = s.db_timestamp
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS s (source_id, seq_nr, db_timestamp)
    WHERE o.projection_id = p_projection_id AND o.source_id = s.source_id COLLATE "C" AND o.seq_nr < s.seq_nr;
    GET DIAGNOSTICS _saved = ROW_COUNT;
    IF _saved < cardinality(p_source_ids) THEN
        INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
        SELECT p_projection_id, s.source_id, s.slice, s.seq_nr, s.db_timestamp
        FROM unnest(p_source_ids, p_slices, p_seq_nrs, p_timestamps) AS s (source_id, slice, seq_nr, db_timestamp)
        WHERE NOT EXISTS (
            SELECT FROM projections.source_offsets AS k
            WHERE k.projection_id = p_projection_id AND k.source_id = s.source_id COLLATE "C"
        );
        GET DIAGNOSTICS _new = ROW_COUNT;
        _saved := _saved + _new;
    END IF;
    IF _saved <> cardinality(p_source_ids) THEN
        RAISE EXCEPTION '% of % sources were already past this batch', cardinality(p_source_ids) - _saved, cardinality(p_source_ids)
        USING ERRCODE = 'PJ011';
    END IF;
END;
$$;
