-- Appends one event: append_events_v1 for hands and for applications in plain SQL.
CREATE OR REPLACE FUNCTION projections.append_event_v1(
    p_source_id text,
    p_entity_type text,
    p_event_type text,
    p_payload json,
    p_metadata json DEFAULT NULL,
    p_tags text[] DEFAULT NULL,
    p_expected_seq_nr bigint DEFAULT NULL,
    p_event_id uuid DEFAULT NULL,
    p_version integer DEFAULT 1
)
RETURNS TABLE (seq_nr bigint, db_timestamp timestamptz, event_id uuid)
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.seq_nr, a.db_timestamp, a.event_id
    FROM projections.append_events_v1(
        ARRAY[p_source_id], ARRAY[p_entity_type], ARRAY[p_event_type], ARRAY[p_payload::text],
        ARRAY[p_version::smallint], ARRAY[p_metadata::text], ARRAY[p_tags::text], ARRAY[p_event_id],
        CASE WHEN p_expected_seq_nr IS NULL THEN '{}' ELSE ARRAY[p_source_id] END,
        CASE WHEN p_expected_seq_nr IS NULL THEN '{}' ELSE ARRAY[p_expected_seq_nr] END
    ) AS a
$$;
