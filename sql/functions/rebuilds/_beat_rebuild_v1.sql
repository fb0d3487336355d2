-- Says that the process that leads a rebuild is there, and makes sure that the database is the one in which it began: the
-- timeline, the time of the beginning, and how often it was said are as that process remembers. Returns how often by now.
-- Raises PJ013 where they are not.
CREATE OR REPLACE FUNCTION projections._beat_rebuild_v1(p_rebuild_id integer, p_started_at timestamptz, p_beats bigint)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE projections.rebuilds AS b SET beats = b.beats + 1
    WHERE b.rebuild_id = p_rebuild_id AND b.started_at = p_started_at AND b.beats = p_beats
    AND b.timeline IS NOT DISTINCT FROM projections.timeline_v1();
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the database went back in time since rebuild % began, or another process leads it', p_rebuild_id
        USING ERRCODE = 'PJ013', HINT = 'Rebuild again.';
    END IF;
    RETURN p_beats + 1;
END;
$$;
