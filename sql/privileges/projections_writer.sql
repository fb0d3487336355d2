-- Appends, imports and reads events, by functions alone: it cannot write the log past their rules, change or delete what is
-- written, nor touch offsets.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_writer') THEN
        RAISE NOTICE 'role projections_writer does not exist: nothing was granted to it';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA projections TO projections_writer;
    GRANT SELECT ON
        projections.schema_versions, projections.captured_tables, projections.projections, projections.partition_settings
    TO projections_writer;
    GRANT SELECT ON
        projections.events, projections.sources, projections.subscriptions, projections.imports, projections.match_ids
    TO projections_writer;
    -- What it had before.
    REVOKE INSERT, UPDATE ON
        projections.events, projections.sources, projections.imports, projections.directed_events
    FROM projections_writer;
    REVOKE EXECUTE ON FUNCTION
        projections._lock_sources_v1,
        projections._same_json_v1
    FROM projections_writer;
    GRANT EXECUTE ON FUNCTION
        projections.slice_of_v1,
        projections._uuid7_time_v1,
        projections._event_bytes_v1,
        projections._key_types_v1,
        projections._entity_types_v1,
        projections._merged_types_v1,
        projections._merged_end_v1,
        projections.read_events_by_slices_v1,
        projections._read_keys_by_slices_v1,
        projections._load_events_v1,
        projections._events_by_keys_v1,
        projections.latest_seq_nr_v1,
        projections.read_source_v1,
        projections.find_event_v1,
        projections._entity_types_appended_v1,
        projections._handled_v1,
        projections._part_name_v1,
        projections._why_waiting_v1,
        projections._begin_inline_v1,
        projections._write_given_events_v1,
        projections._refuse_event_v1,
        projections._predecessors_v1,
        projections.timeline_v1,
        projections.generation_v1,
        projections._replayed_until_v1,
        projections._poll_writers_v1,
        projections._newest_events_v1,
        projections._few_partitions_v1,
        projections._page_end_v1,
        projections.writers_in_flight_v1,
        projections.uuid7_v1,
        projections.checked_json_v1,
        projections.append_events_v1,
        projections.append_event_v1,
        projections._import_events_v1,
        projections._note_move_v1,
        projections._move_imported_v1,
        projections._describe_changes_v1,
        projections._append_changes_v1,
        projections._refuse_truncate_v1,
        projections._check_capturable_v1,
        projections._set_capture_triggers_v1,
        projections.capture_table_v1,
        projections.release_table_v1,
        projections.notify_appended_v1,
        projections.publish_v1
    TO projections_writer;
END;
$$;
