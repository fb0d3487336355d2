-- What an append does before it looks at the clock: takes the lock that readers look for, creates the sources that are
-- new, and locks their rows in one order, so that two appenders of the same sources never deadlock.
CREATE OR REPLACE FUNCTION projections.lock_sources_v1(p_source_ids text[], p_entity_types text[])
RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE;
    INSERT INTO projections.sources (source_id, entity_type, slice, seq_nr, db_timestamp)
    SELECT i.source_id, min(i.entity_type), projections.slice_of_v1(i.source_id), 0, '1970-01-01T00:00:00Z'
    FROM unnest(p_source_ids, p_entity_types) AS i (source_id, entity_type)
    WHERE NOT EXISTS (SELECT FROM projections.sources AS s WHERE s.source_id = i.source_id)
    GROUP BY i.source_id
    ORDER BY i.source_id COLLATE "C"
    ON CONFLICT (source_id) DO NOTHING;

    PERFORM FROM projections.sources AS s
    WHERE s.source_id = ANY(p_source_ids)
    ORDER BY s.source_id
    FOR UPDATE;
END;
$$;
