-- For _save_page_v1, where all before a time counts as handled: deletes the offsets of those sources of a page whose last event is older.
-- Returns the others, as save_offsets_v1 takes them: first those that have an offset, and how many these are. The arrays run in parallel;
-- p_previous has the number before the first one of each source here. Raises PJ011 where an offset has another number.
CREATE OR REPLACE FUNCTION projections._forget_page_v1(
    p_projection_id integer, p_before timestamptz,
    p_source_ids text[], p_slices smallint[], p_previous bigint[], p_seq_nrs bigint[], p_timestamps timestamptz[]
)
RETURNS TABLE (source_ids text[], slices smallint[], previous bigint[], seq_nrs bigint[], timestamps timestamptz[], known integer)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
AS $$
#variable_conflict use_column
DECLARE
    _fit boolean;
BEGIN
    WITH gone AS (
        DELETE FROM projections.source_offsets AS o
        USING (
            SELECT p_projection_id AS projection_id, u.source_id COLLATE "C" AS source_id, u.previous
            FROM unnest(p_source_ids, p_previous, p_timestamps) AS u (source_id, previous, at)
            WHERE u.at < p_before
            OFFSET 0
        ) AS s
        WHERE o.projection_id = s.projection_id AND o.source_id = s.source_id
        RETURNING o.seq_nr = s.previous AS fits
    )
    SELECT bool_and(g.fits) INTO _fit FROM gone AS g;
    IF NOT _fit THEN
        RAISE EXCEPTION 'the events of the page are not the next ones of their sources' USING ERRCODE = 'PJ011';
    END IF;
    RETURN QUERY
    SELECT
        array_agg(k.source_id), array_agg(k.slice), array_agg(k.previous), array_agg(k.seq_nr), array_agg(k.at),
        (count(*) FILTER (WHERE k.has_offset))::integer
    FROM (
        SELECT u.*, (
            SELECT o.seq_nr FROM projections.source_offsets AS o
            WHERE o.projection_id = p_projection_id AND o.source_id = u.source_id COLLATE "C"
        ) IS NOT NULL AS has_offset
        FROM unnest(p_source_ids, p_slices, p_previous, p_seq_nrs, p_timestamps) AS u (source_id, slice, previous, seq_nr, at)
        WHERE u.at >= p_before
        ORDER BY 6 DESC, u.source_id COLLATE "C"
    ) AS k;
END;
$$;
