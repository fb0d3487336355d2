-- What a projection's next event of a source of a journal (NULL: the one that is here) may wait for, in a row; none where there is no
-- such projection.
-- It has the rights of the schema's owner, for callers that may not read offsets.
CREATE OR REPLACE FUNCTION projections._why_waiting_v1(p_projection text, p_source_id text, p_journal text DEFAULT NULL)
RETURNS TABLE (
    paused boolean,
    parked_at bigint,
    parked_error text,
    min_slice smallint,
    max_slice smallint,
    owner text,
    alive boolean,
    error text,
    restarts_at timestamptz,
    seq_nr bigint,
    handled_until timestamptz
)
LANGUAGE plpgsql
VOLATILE
SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY SELECT
        p.paused, k.seq_nr, k.error, r.min_slice, r.max_slice, r.owner,
        coalesce((SELECT w.lease_until > clock_timestamp() FROM projections.workers AS w WHERE w.owner = r.owner), FALSE),
        r.error, r.restarts_at,
        (
            SELECT o.seq_nr FROM projections.source_offsets AS o
            WHERE o.projection_id = p.projection_id AND o.source_id = p_source_id
        ),
        r.handled_until
    FROM projections.projections AS p
    INNER JOIN projections.projection_ranges AS r ON p.projection_id = r.projection_id
    LEFT JOIN projections.parked_sources AS k ON p.projection_id = k.projection_id AND k.source_id = p_source_id
    WHERE p.name = p_projection AND p.journal IS NOT DISTINCT FROM p_journal
    AND projections.slice_of_v1(p_source_id) BETWEEN r.min_slice AND r.max_slice;
END;
$$;
