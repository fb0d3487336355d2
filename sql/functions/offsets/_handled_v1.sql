-- Which of some events projections have handled, as ordinals of the arrays, whose elements belong together. An event is handled
-- when the offset of its source has reached its number, or, where the source has no offset, when it is older than those that
-- are kept and does not wait. Times rise with numbers, so an event that is newer than what the offset is of has got its number after
-- a journal went back in time. For the next seconds, the workers of these projections notify projections_handled after each batch.
--
-- p_journal is the name of the journal that they are of, where that is in another database.
--
-- It has the rights of the schema's owner, for callers that may write no table; on a standby it notes nothing.
CREATE OR REPLACE FUNCTION projections._handled_v1(
    p_projections text[], p_source_ids text[], p_seq_nrs bigint[], p_timestamps timestamptz[],
    p_journal text DEFAULT NULL
)
RETURNS SETOF bigint
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
BEGIN
    IF NOT pg_is_in_recovery() THEN
        -- Nobody waits for the lock of another: it is noted again before it ends.
        UPDATE projections.projections AS p
        SET waited_until = clock_timestamp() + interval '10 seconds'
        FROM (
            SELECT k.projection_id FROM projections.projections AS k
            WHERE k.name = ANY (p_projections) AND k.journal IS NOT DISTINCT FROM p_journal
            AND (k.waited_until IS NULL OR k.waited_until < clock_timestamp() + interval '5 seconds')
            FOR NO KEY UPDATE SKIP LOCKED
        ) AS k
        WHERE p.projection_id = k.projection_id;
    END IF;
    RETURN QUERY SELECT w.ordinal
    FROM unnest(p_projections, p_source_ids, p_seq_nrs, p_timestamps)
    WITH ORDINALITY AS w (projection, source_id, seq_nr, db_timestamp, ordinal)
    WHERE (
        SELECT coalesce(
            (
                SELECT o.seq_nr >= w.seq_nr AND o.db_timestamp >= w.db_timestamp FROM projections.source_offsets AS o
                WHERE o.projection_id = p.projection_id AND o.source_id = w.source_id
            ),
            w.db_timestamp < p.evicted_before AND NOT EXISTS (
                SELECT FROM projections.parked_sources AS k
                WHERE k.projection_id = p.projection_id AND k.source_id = w.source_id AND k.seq_nr <= w.seq_nr
            )
        )
        FROM projections.projections AS p WHERE p.name = w.projection AND p.journal IS NOT DISTINCT FROM p_journal
    );
END;
$$;
