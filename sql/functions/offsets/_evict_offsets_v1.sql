-- Deletes offsets that no reader can need any more, one page of sources; returns the last source of the page, or NULL
-- at the end. The bound is the oldest horizon of all ranges, less the retention: every event before it was
-- handled, also after ranges are merged. An import that a range has not read yet holds it back like a horizon; one into a
-- journal elsewhere does not, and must not be older than the retention (range_runner.py says so then).
-- Of a journal that is ordered by numbers, what had been drawn when the retention began is as old as the retention.
-- Parked sources stay, and all while a rebuild is unfinished.
CREATE OR REPLACE FUNCTION projections._evict_offsets_v1(
    p_projection_id integer, p_retention interval, p_after_source_id text, p_limit integer DEFAULT 10000
)
RETURNS text
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _bound timestamptz;
    _last text;
BEGIN
    -- An import that has committed before the lock below was had must be seen.
    IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'evicting offsets needs the isolation level READ COMMITTED' USING ERRCODE = '25001';
    END IF;
    -- An import compares its times with evicted_before, so the two exclude one another: 55P03 while one runs.
    LOCK TABLE projections.imports IN ROW EXCLUSIVE MODE NOWAIT;
    -- Whoever sets the offset has this, too: the horizons below must be those that it leaves.
    PERFORM FROM projections.projections AS p WHERE p.projection_id = p_projection_id FOR NO KEY UPDATE;
    UPDATE projections.projections AS p
    SET evicted_before = greatest(p.evicted_before, (
        SELECT
            CASE
                WHEN NOT EXISTS (SELECT FROM projections.journal_watermarks AS w WHERE w.journal = p.journal) THEN h.horizon - p_retention
                WHEN d.place IS NOT NULL THEN least(h.horizon, d.place)
            END
        FROM (
            SELECT min(least(r.horizon, (
                SELECT min(i.from_timestamp) FROM projections.imports AS i
                WHERE p.journal IS NULL AND coalesce(i.entity_type = ANY (p.entity_types), TRUE) AND i.import_id > r.import_id
            ))) AS horizon
            FROM projections.projection_ranges AS r WHERE r.projection_id = p.projection_id
        ) AS h
        CROSS JOIN (
            SELECT max(w.place) AS place FROM projections.journal_watermarks AS w
            WHERE w.journal = p.journal AND w.reached_at <= clock_timestamp() - p_retention
        ) AS d
    ))
    WHERE p.projection_id = p_projection_id
    -- Where a rebuild is swapped in, events from its fence on are handled again: until then nothing leaves.
    AND NOT EXISTS (
        SELECT FROM projections.rebuilds AS b
        WHERE b.projection_id = p.projection_id AND b.state IN ('folding', 'verified')
    )
    RETURNING p.evicted_before INTO _bound;

    SELECT max(page.source_id) INTO _last FROM (
        SELECT o.source_id FROM projections.source_offsets AS o
        WHERE o.projection_id = p_projection_id AND o.source_id > p_after_source_id
        ORDER BY o.source_id LIMIT p_limit
    ) AS page;

    DELETE FROM projections.source_offsets AS o
    WHERE o.projection_id = p_projection_id
    AND o.source_id > p_after_source_id AND o.source_id <= _last
    AND o.db_timestamp < _bound
    AND (
        SELECT k.source_id FROM projections.parked_sources AS k
        WHERE k.projection_id = o.projection_id AND k.source_id = o.source_id
    ) IS NULL;
    RETURN _last;
END;
$$;
