-- Sets a source aside because of one event; the reason is shown to whoever decides.
CREATE OR REPLACE FUNCTION projections._park_source_v1(
    p_projection_id integer, p_source_id text, p_slice integer, p_seq_nr bigint, p_event_type text, p_error text, p_attempts integer,
    p_traceback text DEFAULT NULL
)
RETURNS void
LANGUAGE sql
SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO projections.parked_sources AS k (projection_id, source_id, slice, seq_nr, event_type, error, attempts, traceback)
    VALUES (p_projection_id, p_source_id, p_slice, p_seq_nr, p_event_type, p_error, p_attempts, p_traceback)
    ON CONFLICT (projection_id, source_id) DO UPDATE SET
        seq_nr = excluded.seq_nr, event_type = excluded.event_type, error = excluded.error, traceback = excluded.traceback,
        attempts = k.attempts + excluded.attempts, parked_at = clock_timestamp(), decision = 'waiting'
$$;
