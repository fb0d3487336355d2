-- Matches events with one subscription each, whatever it asks for; one that is gone gets nothing.
CREATE OR REPLACE FUNCTION projections.match_directed_v1(
    p_source_ids text[], p_seq_nrs bigint[], p_db_timestamps timestamptz[], p_slices smallint[], p_subscription_ids bigint[]
)
RETURNS bigint
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    _count bigint;
BEGIN
    PERFORM projections.lock_matching_v1();
    INSERT INTO projections.matches (match_id, group_id, slice, seq_nr, db_timestamp, matched_at, source_id, subscription_ids)
    SELECT nextval('projections.match_ids'), m.* FROM (
        SELECT s.group_id, e.slice, e.seq_nr, e.db_timestamp, clock_timestamp(), e.source_id, ARRAY[s.subscription_id]
        FROM unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_subscription_ids)
        WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, subscription_id, place)
        INNER JOIN projections.subscriptions AS s ON e.subscription_id = s.subscription_id
        ORDER BY e.place
    ) AS m;
    GET DIAGNOSTICS _count = ROW_COUNT;
    RETURN _count;
END;
$$;
