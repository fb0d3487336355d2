-- Runs projections: reads everything, and writes where they stand. A handler that appends needs projections_writer too.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_worker') THEN
        RAISE NOTICE 'role projections_worker does not exist: nothing was granted to it';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA projections TO projections_worker;
    GRANT SELECT ON
        projections.schema_versions, projections.captured_tables, projections.sources, projections.events, projections.events_default,
        projections.imports, projections.projections, projections.workers, projections.projection_ranges,
        projections.source_offsets, projections.parked_sources, projections.rebuilds, projections.rebuild_parts,
        projections.rebuild_tables, projections.partitions, projections.partition_settings, projections.subscription_groups,
        projections.group_handlers, projections.group_ranges, projections.group_readers, projections.group_retries,
        projections.conditions, projections.subscriptions, projections.subscription_topics,
        projections.matches, projections.matches_default,
        projections.match_ids, projections.directed_events, projections.unanswered,
        projections.webhook_events, projections.webhook_events_default, projections.webhook_attempts,
        projections.webhook_attempts_default, projections.webhook_log_ids, projections.webhook_limits,
        projections.matchable_events, projections.subscriptions_at_hand
    TO projections_worker;
    GRANT INSERT, UPDATE, DELETE ON
        projections.projections
    TO projections_worker;
    GRANT INSERT, UPDATE, DELETE ON
        projections.workers, projections.projection_ranges, projections.source_offsets, projections.parked_sources,
        projections.rebuilds, projections.rebuild_parts, projections.rebuild_tables
    TO projections_worker;
    GRANT INSERT, UPDATE, DELETE ON
        projections.subscription_groups, projections.group_handlers, projections.group_ranges, projections.group_readers,
        projections.group_retries, projections.conditions, projections.subscriptions, projections.directed_events,
        projections.unanswered
    TO projections_worker;
    GRANT INSERT, UPDATE, DELETE ON
        projections.webhook_events, projections.webhook_attempts, projections.webhook_log_ids
    TO projections_worker;
    GRANT INSERT ON
        projections.matches, projections.subscription_topics
    TO projections_worker;
    GRANT USAGE ON
        SEQUENCE projections.match_ids
    TO projections_worker;
    IF to_regnamespace('projections_conditions') IS NOT NULL THEN
        GRANT USAGE ON SCHEMA projections_conditions TO projections_worker;
    END IF;
    -- Nothing is ever updated here: evicting offsets locks this table, and LOCK TABLE asks for UPDATE.
    GRANT UPDATE ON
        projections.imports
    TO projections_worker;
    GRANT SELECT, INSERT, UPDATE, DELETE ON
        projections.webhook_endpoints, projections.webhook_circuits, projections.webhook_secrets, projections.webhook_deliveries,
        projections.webhook_schedules, projections.webhook_duties, projections.webhook_standstills,
        projections.webhook_answers
    TO projections_worker;
    GRANT SELECT, UPDATE ON
        projections.webhook_forgotten
    TO projections_worker;
    GRANT EXECUTE ON FUNCTION
        projections.tell_of_endpoint_v1,
        projections.lock_endpoint_v1,
        projections.change_endpoint_v1,
        projections.check_room_v1,
        projections.create_endpoint_v1,
        projections.set_endpoint_state_v1,
        projections.remove_endpoint_v1,
        projections.rotate_secret_v1,
        projections.recall_answer_v1,
        projections.keep_answer_v1,
        projections.forget_answers_v1,
        projections.fan_out_v1,
        projections.policy_within_limits_v1,
        projections.claim_deliveries_v1,
        projections.follow_on_v1,
        projections.lock_deliveries_v1,
        projections.judge_endpoint_v1,
        projections.finish_deliveries_v1,
        projections.reap_deliveries_v1,
        projections.retry_delivery_v1,
        projections.retry_deliveries_v1,
        projections.discard_delivery_v1,
        projections.forget_deliveries_v1,
        projections.take_webhook_duty_v1,
        projections.release_waiting_v1,
        projections.check_schedule_endpoint_v1,
        projections.create_schedule_v1,
        projections.change_schedule_v1,
        projections.remove_schedule_v1,
        projections.note_standstill_v1,
        projections.watch_schedules_v1,
        projections.claim_schedules_v1,
        projections.advance_schedules_v1,
        projections.next_schedule_v1,
        projections.endpoint_backlog_v1,
        projections.endpoint_stats_v1,
        projections.webhook_totals_v1,
        projections.slice_of_v1,
        projections.uuid7_v1,
        projections.uuid7_time_v1,
        projections.event_bytes_v1,
        projections.read_events_by_slices_v1,
        projections.read_keys_by_slices_v1,
        projections.read_heads_by_slices_v1,
        projections.load_events_v1,
        projections.latest_seq_nr_v1,
        projections.read_source_v1,
        projections.find_event_v1,
        projections.predecessors_v1,
        projections.generation_v1,
        projections.replayed_until_v1,
        projections.poll_writers_v1,
        projections.newest_events_v1,
        projections.few_partitions_v1,
        projections.page_end_v1,
        projections.writers_in_flight_v1,
        projections.slice_lag_v1,
        projections.group_lag_v1,
        projections.unmatched_events_v1,
        projections.read_offsets_v1,
        projections.missing_partitions_v1,
        projections.partitioned_table_v1,
        projections.partition_bounds_v1,
        projections.group_holders_v1,
        projections.projection_holders_v1,
        projections.retention_holders_v1,
        projections.partition_holders_v1,
        projections.unread_rows_v1,
        projections.maintenance_steps_v1,
        projections.maintain_v1,
        projections.take_maintenance_v1,
        projections.notify_appended_v1,
        projections.register_projection_v1,
        projections.set_ranges_v1,
        projections.remove_projection_v1,
        projections.claim_range_v1,
        projections.assign_ranges_v1,
        projections.check_cut_v1,
        projections.uneven_v1,
        projections.same_life_v1,
        projections.heartbeat_v1,
        projections.leave_v1,
        projections.take_over_v1,
        projections.fail_range_v1,
        projections.save_horizons_v1,
        projections.release_range_v1,
        projections.save_evicted_offsets_v1,
        projections.save_offsets_v1,
        projections.evict_offsets_v1,
        projections.set_offset_v1,
        projections.park_source_v1,
        projections.table_shape_v1,
        projections.index_shapes_v1,
        projections.statistics_shapes_v1,
        projections.only_key_v1,
        projections.unfit_for_rename_v1,
        projections.copy_names_v1,
        projections.copy_grants_v1,
        projections.clone_table_v1,
        projections.copy_foreign_keys_v1,
        projections.validate_foreign_keys_v1,
        projections.drop_foreign_keys_v1,
        projections.begin_rebuild_v1,
        projections.cancel_rebuild_v1,
        projections.lock_rebuild_part_v1,
        projections.replace_rows_v1,
        projections.move_offsets_v1,
        projections.beat_rebuild_v1,
        projections.swap_rebuild_v1,
        projections.settled_matches_v1,
        projections.check_place_v1,
        projections.check_group_range_v1,
        projections.register_handler_v1,
        projections.give_up_handler_v1,
        projections.set_handlers_apart_v1,
        projections.join_handler_v1,
        projections.read_next_v1,
        projections.replay_length_v1,
        projections.entity_types_v1,
        projections.as_jsonb_v1,
        projections.compile_condition_v1,
        projections.in_flight_since_v1,
        projections.condition_id_v1,
        projections.create_group_v1,
        projections.subscribe_v1,
        projections.unsubscribe_v1,
        projections.keep_subscriptions_v1,
        projections.expire_subscriptions_v1,
        projections.drop_condition_v1,
        projections.forget_conditions_v1,
        projections.remove_group_v1,
        projections.lock_matching_v1,
        projections.wanted_topics_v1,
        projections.conditions_apart_v1,
        projections.wanted_conditions_v1,
        projections.ask_condition_v1,
        projections.types_v1,
        projections.matchable_events_v1,
        projections.ask_alone_v1,
        projections.subscriptions_state_v1,
        projections.interests_v1,
        projections.asked_events_v1,
        projections.match_as_given_v1,
        projections.match_events_v1,
        projections.match_log_v1,
        projections.match_due_v1,
        projections.quarantine_condition_v1,
        projections.judge_condition_v1,
        projections.put_aside_v1,
        projections.next_unanswered_v1,
        projections.match_unanswered_v1,
        projections.retry_unanswered_v1,
        projections.drop_unanswered_v1,
        projections.release_condition_v1,
        projections.poll_group_v1,
        projections.release_group_range_v1,
        projections.leave_group_v1,
        projections.cut_group_v1,
        projections.move_cursor_v1,
        projections.fail_batch_v1,
        projections.take_retries_v1,
        projections.finish_retry_v1,
        projections.forget_retry_v1,
        projections.replay_retry_v1,
        projections.begin_matching_v1,
        projections.log_events_v1,
        projections.log_attempts_v1,
        projections.log_any_of_v1,
        projections.log_walk_v1,
        projections.log_each_v1,
        projections.log_filters_v1,
        projections.log_bucket_v1,
        projections.log_dimensions_v1,
        projections.list_logged_events_v1,
        projections.list_logged_attempts_v1,
        projections.event_metrics_v1,
        projections.attempt_metrics_v1
    TO projections_worker;
END;
$$;
