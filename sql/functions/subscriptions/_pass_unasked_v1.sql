-- Moves the places of conditions behind pages that are not for them, and deletes pages that all have passed, up to p_limit;
-- returns how many. Whoever matches calls it, every second.
CREATE OR REPLACE FUNCTION projections._pass_unasked_v1(p_limit integer DEFAULT 1000)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_sort = off
AS $$
DECLARE
    _settled bigint;
    _first bigint;
    _count bigint;
BEGIN
    IF NOT EXISTS (SELECT FROM projections.unasked) THEN
        RETURN 0;
    END IF;
    _settled := projections.settled_matches_v1();
    -- So that whether one is behind takes a look at the pages of the last second, and not at all that wait for others.
    UPDATE projections.conditions AS c SET unasked_from = _settled + 1, unasked_skip = 0
    WHERE c.condition_id = ANY (ARRAY(
        SELECT p.condition_id FROM projections.conditions AS p
        WHERE p.quarantined_at IS NULL
        AND (
            SELECT u.page_id FROM projections.unasked AS u WHERE u.page_id >= p.unasked_from AND u.page_id <= _settled
            ORDER BY u.page_id LIMIT 1
        ) IS NOT NULL
        AND (
            SELECT u.page_id FROM projections.unasked AS u
            WHERE u.page_id >= p.unasked_from AND u.page_id <= _settled AND p.condition_id = ANY (u.condition_ids)
            ORDER BY u.page_id LIMIT 1
        ) IS NULL
        ORDER BY p.condition_id
        FOR NO KEY UPDATE SKIP LOCKED  -- a batch that judges it may take long
    ));
    SELECT least(_settled + 1, min(c.unasked_from)) INTO _first FROM projections.conditions AS c;
    DELETE FROM projections.unasked AS u WHERE u.page_id = ANY (ARRAY(
        SELECT f.page_id FROM projections.unasked AS f WHERE f.page_id < _first ORDER BY f.page_id LIMIT p_limit
    ));
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
