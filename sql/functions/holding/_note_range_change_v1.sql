-- Notes what happened to the ranges of a projection, and forgets all but the newest 50 changes. What another is about to forget is left
-- to it: nobody waits here.
CREATE OR REPLACE FUNCTION projections._note_range_change_v1(
    p_projection_id integer, p_kind text, p_ranges integer, p_ranges_before integer, p_taken_from text, p_taken_by text
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO projections.range_changes (projection_id, kind, ranges, ranges_before, taken_from, taken_by)
    VALUES (p_projection_id, p_kind, p_ranges, p_ranges_before, p_taken_from, p_taken_by);
    DELETE FROM projections.range_changes AS c
    USING (
        SELECT k.change_id FROM projections.range_changes AS k
        WHERE k.projection_id = p_projection_id AND k.change_id <= (
            SELECT n.change_id FROM projections.range_changes AS n
            WHERE n.projection_id = p_projection_id ORDER BY n.change_id DESC OFFSET 50 LIMIT 1
        )
        FOR UPDATE SKIP LOCKED
    ) AS old
    WHERE c.projection_id = p_projection_id AND c.change_id = old.change_id;
$$;
