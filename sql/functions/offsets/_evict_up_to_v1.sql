-- In the transaction of a batch: makes all events before p_until count as handled (evicted_before), as if their offsets had been stored
-- and evicted, so that a worker that catches up need not store them. With this batch all of them are handled, no event of that time can
-- appear any more, and the batch belongs to the only range of the projection, which save_offsets_v1 checks next. The bound stays
-- p_retention behind the database's clock: a clock that steps back by no more stamps no new event with a time that counts as handled.
--
-- Returns the new bound. An offset that is older need not be stored, and one that is stored already must be deleted (_forget_offsets_v1).
-- NULL: all offsets must be stored.
CREATE OR REPLACE FUNCTION projections._evict_up_to_v1(
    p_projection_id integer, p_import_id bigint, p_until timestamptz, p_retention interval
)
RETURNS timestamptz
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _bound timestamptz;
BEGIN
    -- What has committed before the locks below were had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RETURN NULL;
    END IF;
    BEGIN
        -- An import compares its times with evicted_before, so the two exclude one another.
        LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE NOWAIT;
    EXCEPTION WHEN lock_not_available THEN
        RETURN NULL;
    END;
    -- A client that is stopped or cut off must not keep these locks; save_offsets_v1 sets the same.
    PERFORM set_config('idle_in_transaction_session_timeout', '10s', TRUE);
    -- Setting the offset, cutting ranges, beginning a rebuild and restoring events take this lock, too.
    PERFORM FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    IF NOT projections._may_evict_v1(p_projection_id, p_import_id, p_retention) THEN
        RETURN NULL;
    END IF;
    UPDATE projections.projections AS p
    SET evicted_before = least(p_until, clock_timestamp() - p_retention)
    WHERE p.projection_id = p_projection_id AND p.evicted_before < least(p_until, clock_timestamp() - p_retention)
    RETURNING p.evicted_before INTO _bound;
    RETURN _bound;
END;
$$;
