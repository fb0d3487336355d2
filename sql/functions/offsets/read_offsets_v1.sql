-- Where given sources stand in a projection; no row for one that is not known.
CREATE OR REPLACE FUNCTION projections.read_offsets_v1(p_projection_id integer, p_source_ids text[])
RETURNS TABLE (source_id text, seq_nr bigint)
LANGUAGE sql
STABLE
AS $$
    SELECT o.source_id, o.seq_nr
    FROM projections.source_offsets AS o
    WHERE o.projection_id = p_projection_id AND o.source_id = ANY(p_source_ids)
$$;
