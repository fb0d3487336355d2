-- Stores offsets that were evicted since a worker looked them up: what they stood at is older than what is kept, or deleted.
-- Those that are still there are left alone. Returns how many were stored: none when one of them may not have been evicted.
CREATE OR REPLACE FUNCTION projections._save_evicted_offsets_v1(
    p_projection_id integer, p_source_ids text[], p_previous bigint[], p_seq_nrs bigint[], p_timestamps timestamptz[]
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
AS $$
DECLARE
    _gone text[];
    _next bigint[];
    _saved bigint;
BEGIN
    SELECT array_agg(u.source_id), array_agg(u.previous + 1) INTO _gone, _next
    FROM unnest(p_source_ids, p_previous) AS u (source_id, previous)
    WHERE (
        SELECT k.seq_nr FROM projections.source_offsets AS k
        WHERE k.projection_id = p_projection_id AND k.source_id = u.source_id COLLATE "C"
    ) IS NULL;
    IF EXISTS (
        SELECT FROM projections.projections AS p
        CROSS JOIN LATERAL projections._predecessors_v1(
            _gone, _next, p.evicted_before, (SELECT max(t.at) FROM unnest(p_timestamps) AS t (at))
        )
        WHERE p.projection_id = p_projection_id
    ) THEN
        RETURN 0;
    END IF;
    INSERT INTO projections.source_offsets AS o (projection_id, source_id, slice, seq_nr, db_timestamp)
    SELECT p_projection_id, s.source_id, projections.slice_of_v1(s.source_id), s.seq_nr, s.db_timestamp
    FROM unnest(p_source_ids, p_seq_nrs, p_timestamps) AS s (source_id, seq_nr, db_timestamp)
    WHERE s.source_id = ANY(_gone)
    ON CONFLICT DO NOTHING;
    GET DIAGNOSTICS _saved = ROW_COUNT;
    RETURN _saved;
END;
$$;
