-- Reads everything, changes nothing: dashboards, reports, Spark.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_reader') THEN
        RAISE NOTICE 'role projections_reader does not exist: nothing was granted to it';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA projections TO projections_reader;
    GRANT SELECT ON
        projections.schema_versions, projections.captured_tables, projections.sources, projections.message_ids, projections.events, projections.events_default,
        projections.imports, projections.projections, projections.workers, projections.projection_ranges,
        projections.range_changes, projections.read_models, projections.source_offsets, projections.parked_sources, projections.reactions, projections.rebuilds, projections.rebuild_parts,
        projections.rebuild_tables, projections.partitions, projections.partition_settings, projections.subscription_groups,
        projections.group_handlers, projections.group_ranges, projections.group_retries,
        projections.conditions, projections.subscriptions, projections.subscription_topics, projections.subscription_history,
        projections.matches, projections.matches_default,
        projections.match_ids, projections.directed_events, projections.unanswered, projections.unasked,
        projections.webhook_events, projections.webhook_events_default, projections.webhook_attempts,
        projections.webhook_attempts_default, projections.webhook_log_ids, projections.webhook_limits, projections.journals,
        projections.journal_watermarks
    TO projections_reader;
    -- No secrets; and headers may hold some.
    GRANT SELECT (
        endpoint_id, tenant, url, description, topics, filter, state, reason, policy, max_in_flight, rate_limit, ordering, on_dead,
        when_disabled, gzip, version, created_at, updated_at, verified_url
    ) ON projections.webhook_endpoints TO projections_reader;
    GRANT SELECT (endpoint_id, kind, facts, created_at) ON projections.webhook_credentials TO projections_reader;
    GRANT SELECT ON
        projections.webhook_circuits, projections.webhook_deliveries, projections.webhook_schedules, projections.turns,
        projections.webhook_forgotten, projections.webhook_standstills, projections.erased_messages
    TO projections_reader;
    GRANT EXECUTE ON FUNCTION
        projections._endpoint_backlog_v1,
        projections.endpoint_stats_v1,
        projections._webhook_totals_v1,
        projections.slice_of_v1,
        projections._uuid7_time_v1,
        projections._event_bytes_v1,
        projections._key_types_v1,
        projections._content_of_events_v1,
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
        projections._why_waiting_v1,
        projections._part_name_v1,
        projections._predecessors_v1,
        projections.timeline_v1,
        projections.generation_v1,
        projections._replayed_until_v1,
        projections._poll_writers_v1,
        projections._newest_events_v1,
        projections._few_partitions_v1,
        projections._page_end_v1,
        projections.writers_in_flight_v1,
        projections._ranges_alike_v1,
        projections._rebuilds_under_way_v1,
        projections.slice_lag_v1,
        projections.group_lag_v1,
        projections._unmatched_events_v1,
        projections.read_offsets_v1,
        projections._known_since_v1,
        projections._missing_partitions_v1,
        projections._partitioned_table_v1,
        projections._partition_bounds_v1,
        projections._hooks_v1,
        projections._projection_holders_v1,
        projections._hook_holders_projections_v1,
        projections._hook_unread_projections_v1,
        projections._group_holders_v1,
        projections._hook_holders_subscriptions_v1,
        projections._hook_unread_subscriptions_v1,
        projections._hook_holders_webhooks_v1,
        projections._retention_holders_v1,
        projections._conditions_apart_v1,
        projections.partition_holders_v1,
        projections._unread_rows_v1,
        projections._maintenance_steps_v1,
        projections.settled_matches_v1,
        projections.check_place_v1,
        projections.read_next_v1,
        projections._replay_length_v1,
        projections._log_any_of_v1,
        projections._log_walk_v1,
        projections._log_key_v1,
        projections._log_walked_v1,
        projections._log_few_events_v1,
        projections._log_bucket_v1,
        projections._list_logged_events_v1,
        projections._list_logged_attempts_v1,
        projections._log_metrics_v1
    TO projections_reader;
END;
$$;
