-- Notes where the end of a journal is that is ordered by numbers (p_place), as somebody saw it after p_seen_at. What is older than the
-- retention is one row, and a journal that goes on has one row for each ten seconds of it.
CREATE OR REPLACE FUNCTION projections._note_watermark_v1(
    p_journal text, p_place timestamptz, p_seen_at timestamptz, p_retention interval
)
RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
AS $$
DECLARE
    _now CONSTANT timestamptz := clock_timestamp();
BEGIN
    -- An end that lies before one that was seen earlier: the journal went back, and gives these numbers again.
    DELETE FROM projections.journal_watermarks AS w
    WHERE w.journal = p_journal AND w.place > p_place AND w.seen_at < p_seen_at;
    UPDATE projections.journal_watermarks AS w SET seen_at = greatest(w.seen_at, p_seen_at)
    WHERE w.journal = p_journal AND w.place = p_place;
    IF NOT FOUND AND _now - interval '10 s' >= coalesce((
        SELECT w.reached_at FROM projections.journal_watermarks AS w
        WHERE w.journal = p_journal ORDER BY w.place DESC LIMIT 1
    ), '-infinity') THEN
        INSERT INTO projections.journal_watermarks (journal, place, reached_at, seen_at)
        VALUES (p_journal, p_place, _now, p_seen_at)
        ON CONFLICT (journal, place) DO NOTHING;
    END IF;
    DELETE FROM projections.journal_watermarks AS w
    WHERE w.journal = p_journal AND w.place < (
        SELECT max(o.place) FROM projections.journal_watermarks AS o
        WHERE o.journal = p_journal AND o.reached_at <= _now - p_retention
    );
END;
$$;
