-- Keeps events that a condition has failed on: p_places says which of the events, and p_errors, beside them, why.
-- match_events_v1 calls it.
CREATE OR REPLACE FUNCTION projections.put_aside_v1(
    p_condition_id integer,
    p_entity_type text,
    p_source_ids text[],
    p_seq_nrs bigint[],
    p_db_timestamps timestamptz[],
    p_slices smallint[],
    p_topics text[],
    p_as_of timestamptz[],
    p_places bigint[],
    p_errors text[]
)
RETURNS void
LANGUAGE plpgsql
-- The planner takes arrays to be short, and would go through one for each element of another.
SET enable_nestloop = off
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO projections.unanswered AS u (
        condition_id, entity_type, source_id, seq_nr, db_timestamp, slice, topic, as_of, error, due
    )
    SELECT
        p_condition_id, p_entity_type, e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.topic, coalesce(e.as_of, e.db_timestamp),
        left(k.error, 2000), FALSE
    FROM unnest(p_places, p_errors) AS k (place, error)
    INNER JOIN unnest(p_source_ids, p_seq_nrs, p_db_timestamps, p_slices, p_topics, p_as_of)
    WITH ORDINALITY AS e (source_id, seq_nr, db_timestamp, slice, topic, as_of, place) ON k.place = e.place
    ORDER BY e.place
    -- It was asked again, and failed again.
    ON CONFLICT (condition_id, source_id, seq_nr) DO UPDATE
    SET error = excluded.error, due = FALSE, set_apart_at = clock_timestamp();
END;
$$;
