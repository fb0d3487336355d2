-- Gives back the numbers that an append has reserved for events that are stored already: p_stored names the source of each, one of
-- p_source_ids, for which p_counts were reserved. Their rows become what they would be without these events: a source of which nothing
-- else is appended has the time of its last event again, which is not older than p_since, the oldest of the stored ones.
-- Returns the sources for which numbers remain, as they stand with them.
CREATE OR REPLACE FUNCTION projections._return_numbers_v1(
    p_source_ids text[], p_counts bigint[], p_stored text[], p_since timestamptz
)
RETURNS TABLE (source_id text, seq_nr bigint, db_timestamp timestamptz, slice smallint, events bigint)
LANGUAGE plpgsql
-- Planned with the time as a value: no older partition is opened.
SET plan_cache_mode = 'force_custom_plan'
SET enable_seqscan = off
SET enable_bitmapscan = off
SET enable_hashjoin = off
SET enable_mergejoin = off
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    _source_ids text[];
    _returned bigint[];
    _remaining bigint[];
BEGIN
    SELECT array_agg(k.source_id), array_agg(k.returned), array_agg(k.reserved - k.returned) INTO _source_ids, _returned, _remaining
    FROM (
        SELECT u.source_id, coalesce(sum(u.reserved), 0)::bigint AS reserved, count(*) - count(u.reserved) AS returned
        FROM (
            SELECT r.source_id COLLATE "C" AS source_id, r.reserved FROM unnest(p_source_ids, p_counts) AS r (source_id, reserved)
            UNION ALL
            SELECT o.source_id, NULL FROM unnest(p_stored) AS o (source_id)
        ) AS u
        GROUP BY u.source_id
    ) AS k;
    UPDATE projections.sources AS s SET
        seq_nr = s.seq_nr - k.returned,
        db_timestamp = coalesce(
            (
                SELECT e.db_timestamp FROM projections.events AS e
                WHERE k.remaining = 0 AND e.source_id = s.source_id AND e.seq_nr = s.seq_nr - k.returned AND e.db_timestamp >= p_since
                LIMIT 1
            ),
            s.db_timestamp - k.returned * interval '1 microsecond'
        )
    FROM unnest(_source_ids, _returned, _remaining) AS k (source_id, returned, remaining)
    WHERE s.source_id = k.source_id AND k.returned > 0;
    RETURN QUERY
    SELECT s.source_id, s.seq_nr, s.db_timestamp, s.slice, k.remaining
    FROM unnest(_source_ids, _remaining) AS k (source_id, remaining)
    CROSS JOIN LATERAL (SELECT s.* FROM projections.sources AS s WHERE s.source_id = k.source_id LIMIT 1) AS s
    WHERE k.remaining > 0;
END;
$$;
