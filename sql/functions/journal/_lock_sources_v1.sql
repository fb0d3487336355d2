-- What an append does before it looks at the clock: takes the lock that readers look for, creates the sources that are
-- new, and locks the rows of all. One pass in one order, the order of every append, so that two appenders of the same
-- sources never deadlock. (DO UPDATE ... WHERE FALSE locks the row and changes nothing.)
CREATE OR REPLACE FUNCTION projections._lock_sources_v1(p_source_ids text[], p_entity_types text[])
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET plan_cache_mode = 'force_generic_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    LOCK TABLE projections.sources IN ROW EXCLUSIVE MODE;
    INSERT INTO projections.sources AS s (source_id, entity_type, slice, seq_nr, db_timestamp)
    SELECT
        i.source_id, i.entity_type,
        coalesce(
            (SELECT k.slice FROM projections.sources AS k WHERE k.source_id = i.source_id), projections.slice_of_v1(i.source_id)
        ),
        0, '1970-01-01T00:00:00Z'
    FROM (
        SELECT n.source_id COLLATE "C" AS source_id, min(n.entity_type) AS entity_type
        FROM unnest(p_source_ids, p_entity_types) AS n (source_id, entity_type)
        GROUP BY 1
    ) AS i
    ORDER BY i.source_id
    ON CONFLICT (source_id) DO UPDATE SET seq_nr = s.seq_nr WHERE FALSE;
END;
$$;
