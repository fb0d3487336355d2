-- Runs projections: reads everything, and writes where they stand. A handler that appends needs projections_writer too.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_worker') THEN
        RAISE NOTICE 'role projections_worker does not exist: nothing was granted to it';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA projections TO projections_worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON
        projections.projections, projections.workers, projections.projection_ranges, projections.source_offsets,
        projections.parked_sources, projections.range_changes, projections.read_models, projections.journal_watermarks, projections.reactions, projections.rebuilds, projections.rebuild_parts,
        projections.rebuild_tables, projections.subscription_groups, projections.group_handlers, projections.group_ranges, projections.group_retries,
        projections.conditions, projections.subscriptions, projections.subscription_history, projections.directed_events, projections.unanswered, projections.unasked,
        projections.webhook_endpoints, projections.webhook_circuits, projections.webhook_secrets, projections.webhook_credentials, projections.webhook_deliveries,
        projections.webhook_schedules, projections.turns, projections.webhook_standstills, projections.webhook_answers,
        projections.webhook_events, projections.webhook_attempts, projections.webhook_log_ids
    TO projections_worker;
    GRANT SELECT, INSERT ON
        projections.matches, projections.subscription_topics
    TO projections_worker;
    -- Only those that nobody takes any more.
    GRANT SELECT, UPDATE, DELETE ON
        projections.message_ids
    TO projections_worker;
    -- Nothing is ever updated in imports: evicting offsets locks that table, and LOCK TABLE asks for UPDATE.
    GRANT SELECT, UPDATE ON
        projections.webhook_forgotten, projections.imports
    TO projections_worker;
    GRANT SELECT ON
        projections.schema_versions, projections.captured_tables, projections.sources, projections.events, projections.events_default,
        projections.partitions, projections.partition_settings, projections.matches_default, projections.match_ids,
        projections.webhook_events_default, projections.webhook_attempts_default, projections.webhook_limits,
        projections.matchable_events, projections.subscriptions_at_hand, projections.journals
    TO projections_worker;
    GRANT USAGE ON
        SEQUENCE projections.match_ids
    TO projections_worker;
    IF to_regnamespace('projections_conditions') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA projections_conditions TO projections_worker;
    END IF;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA projections TO projections_worker;
    REVOKE EXECUTE ON FUNCTION
        -- What a writer does.
        projections.checked_json_v1,
        projections._lock_sources_v1,
        projections._same_json_v1,
        projections._unordered_v1,
        projections._stored_events_v1,
        projections._take_message_ids_v1,
        projections._return_numbers_v1,
        projections.append_events_v1,
        projections.append_event_v1,
        projections._begin_inline_v1,
        projections._move_imported_v1,
        projections._import_events_v1,
        projections.publish_v1,
        projections._note_move_v1,
        projections._describe_changes_v1,
        projections._append_changes_v1,
        projections._refuse_truncate_v1,
        projections._check_capturable_v1,
        projections._set_capture_triggers_v1,
        projections.capture_table_v1,
        projections.release_table_v1,
        -- What makes functions of texts.
        projections._check_condition_is_harmless_v1,
        projections._check_condition_v1,
        projections._looks_up_params_v1,
        projections._make_condition_v1,
        -- What changes time partitions is for the owner, and, within the settings, for maintain_v1.
        projections._create_partition_v1,
        projections._partition_indexes_v1,
        projections._drop_partition_copies_v1,
        projections._cluster_partition_v1,
        projections._swap_partition_v1,
        projections._replace_partition_v1,
        projections._lock_within_v1,
        projections._lock_patiently_v1,
        projections._newly_held_v1,
        projections._partition_settings_v1,
        projections._drop_partition_v1,
        projections.detach_partition_v1,
        projections._check_archived_v1,
        projections._read_restored_v1,
        projections._passed_ranges_v1,
        projections._pass_restored_v1,
        projections._erase_restored_v1,
        projections._hook_locks_projections_v1,
        projections._hook_places_projections_v1,
        projections._hook_locks_subscriptions_v1,
        projections._hook_places_subscriptions_v1,
        projections._hook_drop_subscriptions_v1,
        projections._forget_logged_ids_v1,
        projections._hook_maintain_subscriptions_v1,
        projections._hook_maintain_webhooks_v1,
        projections._clean_v1
    FROM projections_worker;
END;
$$;
