-- Since when events of a journal that is ordered by numbers may have been there, in the order of their places: since its end was last
-- seen at or before them. Of one that was there before its end was ever seen, since then; and where none was seen, since the projection
-- is known.
CREATE OR REPLACE FUNCTION projections._known_since_v1(p_projection_id integer, p_places timestamptz[])
RETURNS timestamptz[]
LANGUAGE sql
STABLE
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
    SELECT array(
        SELECT coalesce(
            (
                SELECT w.seen_at FROM projections.journal_watermarks AS w
                WHERE w.journal = p.journal AND w.place <= n.place ORDER BY w.place DESC LIMIT 1
            ),
            (
                SELECT w.reached_at FROM projections.journal_watermarks AS w
                WHERE w.journal = p.journal ORDER BY w.place LIMIT 1
            ),
            p.created_at
        )
        FROM unnest(p_places) WITH ORDINALITY AS n (place, ordinal)
        ORDER BY n.ordinal
    )
    FROM projections.projections AS p WHERE p.projection_id = p_projection_id
$$;
