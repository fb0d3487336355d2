-- Number and checksum of the events of a time by their day in UTC: of one entity type, or of all. A bound of NULL is none.
-- Each event counts with 56 bits of the SHA-256 of its columns, text as it is stored, so neither the order of events nor the cut into
-- parts matters. Every version of PostgreSQL computes the same, and so does event_checksums.py of files.
CREATE OR REPLACE FUNCTION projections._content_of_events_v1(
    p_from timestamptz, p_to timestamptz, p_entity_type text DEFAULT NULL
)
RETURNS TABLE (day date, events bigint, content numeric)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
-- What is NULL is no condition, and the time says which partitions: a plan for any values would read all of them.
SET plan_cache_mode = 'force_custom_plan'
AS $$
BEGIN
    RETURN QUERY
    SELECT
        (e.db_timestamp AT TIME ZONE 'UTC')::date,
        count(*),
        sum(('x' || encode(substring(sha256(convert_to(concat_ws(
            E'\n', e.source_id, e.seq_nr, (extract(EPOCH FROM e.db_timestamp) * 1000000)::bigint, e.slice, e.event_id, e.entity_type,
            e.event_type, e.version, e.payload::text, coalesce(e.metadata::text, E'\x1e'),
            coalesce(array_to_string(e.tags, E'\x1f'), E'\x1e')
        ), 'UTF8')) FROM 1 FOR 7), 'hex'))::bit(56)::bigint)
    FROM projections.events AS e
    WHERE (p_entity_type IS NULL OR e.entity_type = p_entity_type)
    AND (p_from IS NULL OR e.db_timestamp >= p_from) AND (p_to IS NULL OR e.db_timestamp < p_to)
    GROUP BY 1;
END;
$$;
