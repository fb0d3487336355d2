-- The number of a source's latest event; NULL when it has none.
CREATE OR REPLACE FUNCTION projections.latest_seq_nr_v1(p_source_id text)
RETURNS bigint
LANGUAGE plpgsql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
BEGIN
    RETURN (SELECT s.seq_nr FROM projections.sources AS s WHERE s.source_id = p_source_id);
END;
$$;
