-- Where a part of a rebuild stands, locked: the tasks that fold it take turns. No row when the rebuild has ended, or when
-- one of its parts cannot go on: then the others stop, too. Numbers of rebuilds are given out again after a fail-over: with
-- p_started_at it is the one that was begun then.
CREATE OR REPLACE FUNCTION projections._lock_rebuild_part_v1(
    p_rebuild_id integer, p_min_slice integer, p_started_at timestamptz DEFAULT NULL
)
RETURNS TABLE (source_id text, seq_nr bigint, done boolean)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.source_id, k.seq_nr, k.done
    FROM projections.rebuild_parts AS k INNER JOIN projections.rebuilds AS b ON k.rebuild_id = b.rebuild_id
    WHERE k.rebuild_id = p_rebuild_id AND k.min_slice = p_min_slice AND b.state = 'folding'
    AND (p_started_at IS NULL OR b.started_at = p_started_at)
    AND NOT EXISTS (SELECT FROM projections.rebuild_parts AS o WHERE o.rebuild_id = p_rebuild_id AND o.error IS NOT NULL)
    FOR UPDATE OF k
$$;
