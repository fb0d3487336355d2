-- A source's events with numbers from p_from to p_to, a page at a time; backwards from p_to where p_backwards is set.
CREATE OR REPLACE FUNCTION projections.read_source_v1(
    p_source_id text, p_from bigint, p_to bigint, p_backwards boolean, p_limit integer
)
RETURNS TABLE (
    source_id text,
    seq_nr bigint,
    db_timestamp timestamptz,
    slice smallint,
    event_id uuid,
    entity_type text,
    event_type text,
    version smallint,
    payload text,
    metadata text,
    tags text[]
)
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Two queries, because an order that depends on a parameter can use no index.
    IF p_backwards THEN
        RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags
        FROM projections.events AS e
        WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
        ORDER BY e.seq_nr DESC LIMIT p_limit;
    ELSE
        RETURN QUERY SELECT
        e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_id, e.entity_type, e.event_type, e.version,
        e.payload::text, e.metadata::text, e.tags
        FROM projections.events AS e
        WHERE e.source_id = p_source_id AND e.seq_nr BETWEEN p_from AND p_to
        ORDER BY e.seq_nr LIMIT p_limit;
    END IF;
END;
$$;
