-- Which events that this transaction has just appended it is to handle for projections, in the same transaction; their offsets are
-- stored at once. The arrays of sources run in parallel: the first and the last number that a source has got, and the time of the
-- first. A source is left to the workers unless everything before those events has been handled: nobody but this transaction can
-- see its events, so no worker handles them, too. All of a projection are left where it is not inline, is paused, or runs another version
-- or reads other types than its code (p_types: texts of arrays, as heartbeat_v1 has them).
--
-- Whoever sets offsets back (_lock_inline_v1) waits for this transaction. It has the rights of the schema's owner, for callers that
-- may not write offsets. Raises 25P01 when nothing was appended in this transaction.
CREATE OR REPLACE FUNCTION projections._begin_inline_v1(
    p_projections text[], p_versions integer[], p_types text[],
    p_source_ids text[], p_entity_types text[], p_first bigint[], p_last bigint[], p_first_at timestamptz[], p_last_at timestamptz[]
)
RETURNS TABLE (projection text, source_id text)
LANGUAGE plpgsql
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    _ids integer[];
    _id integer;
BEGIN
    IF pg_current_xact_id_if_assigned() IS NULL THEN
        RAISE EXCEPTION 'events are handled inline in the transaction that appends them, and none is open' USING ERRCODE = '25P01';
    END IF;
    _ids := ARRAY(
        SELECT p.projection_id FROM projections.projections AS p
        WHERE p.name = ANY (p_projections) AND p.mode = 'inline' ORDER BY p.projection_id
    );
    FOREACH _id IN ARRAY _ids LOOP
        PERFORM pg_advisory_xact_lock_shared(hashtext('slice-projections inline'), _id);
    END LOOP;
    -- What an older snapshot shows may have been set back meanwhile; then this raises 40001.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        PERFORM FROM projections.projections AS p WHERE p.projection_id = ANY (_ids) ORDER BY p.projection_id FOR SHARE;
    END IF;
    RETURN QUERY
    WITH asked AS (
        SELECT
            p.projection_id, p.name, p.evicted_before, s.source_id, s.first, s.last, s.first_at, s.last_at,
            (
                SELECT o.seq_nr FROM projections.source_offsets AS o
                WHERE o.projection_id = p.projection_id AND o.source_id = s.source_id
            ) AS handled
        FROM unnest(p_projections, p_versions, p_types) AS n (name, version, entity_types)
        INNER JOIN projections.projections AS p
            ON n.name = p.name AND n.version = p.version AND p.entity_types IS NOT DISTINCT FROM n.entity_types::text[]
        CROSS JOIN unnest(p_source_ids, p_entity_types, p_first, p_last, p_first_at, p_last_at)
            AS s (source_id, entity_type, first, last, first_at, last_at)
        WHERE p.projection_id = ANY (_ids) AND p.mode = 'inline' AND NOT p.paused
        AND coalesce(s.entity_type = ANY (p.entity_types), TRUE)
    ), ready AS (
        SELECT a.* FROM asked AS a
        WHERE CASE
            WHEN a.handled IS NOT NULL THEN a.handled = a.first - 1
            -- As the workers decide about a source without an offset.
            ELSE a.first_at >= a.evicted_before AND (a.first = 1 OR NOT EXISTS (
                SELECT FROM projections._predecessors_v1(ARRAY[a.source_id], ARRAY[a.first], a.evicted_before, a.first_at)
            ))
        END
        AND NOT EXISTS (
            SELECT FROM projections.parked_sources AS k
            WHERE k.projection_id = a.projection_id AND k.source_id = a.source_id
        )
        ORDER BY a.projection_id, a.source_id COLLATE "C"
    ), saved AS (
        INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
        SELECT r.projection_id, r.source_id, projections.slice_of_v1(r.source_id), r.last, r.last_at FROM ready AS r
        ON CONFLICT (projection_id, source_id) DO UPDATE SET seq_nr = excluded.seq_nr, db_timestamp = excluded.db_timestamp
    )
    SELECT r.name, r.source_id FROM ready AS r;
END;
$$;
