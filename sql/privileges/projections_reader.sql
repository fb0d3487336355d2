-- Reads everything, changes nothing: dashboards, reports, Spark.
DO $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_roles AS r WHERE r.rolname = 'projections_reader') THEN
        RAISE NOTICE 'role projections_reader does not exist: nothing was granted to it';
        RETURN;
    END IF;
    GRANT USAGE ON SCHEMA projections TO projections_reader;
    GRANT SELECT ON
        projections.schema_versions, projections.captured_tables, projections.sources, projections.events, projections.events_default,
        projections.imports, projections.projections, projections.workers, projections.projection_ranges,
        projections.source_offsets, projections.parked_sources, projections.reactions, projections.rebuilds, projections.rebuild_parts,
        projections.rebuild_tables, projections.partitions, projections.partition_settings, projections.subscription_groups,
        projections.group_handlers, projections.group_ranges, projections.group_retries,
        projections.conditions, projections.subscriptions, projections.subscription_topics, projections.subscription_history,
        projections.matches, projections.matches_default,
        projections.match_ids, projections.directed_events, projections.unanswered, projections.unasked,
        projections.webhook_events, projections.webhook_events_default, projections.webhook_attempts,
        projections.webhook_attempts_default, projections.webhook_log_ids, projections.webhook_limits
    TO projections_reader;
    -- No secrets; and headers may hold some.
    GRANT SELECT (
        endpoint_id, tenant, url, description, topics, filter, state, reason, policy, max_in_flight, rate_limit, ordering, on_dead,
        when_disabled, gzip, version, created_at, updated_at, verified_url
    ) ON projections.webhook_endpoints TO projections_reader;
    GRANT SELECT ON
        projections.webhook_circuits, projections.webhook_deliveries, projections.webhook_schedules, projections.turns,
        projections.webhook_forgotten, projections.webhook_standstills
    TO projections_reader;
    GRANT EXECUTE ON FUNCTION
        projections.endpoint_backlog_v1,
        projections.endpoint_stats_v1,
        projections.webhook_totals_v1,
        projections.slice_of_v1,
        projections.uuid7_time_v1,
        projections.event_bytes_v1,
        projections.entity_types_v1,
        projections.merged_types_v1,
        projections.merged_end_v1,
        projections.read_events_by_slices_v1,
        projections.read_keys_by_slices_v1,
        projections.load_events_v1,
        projections.latest_seq_nr_v1,
        projections.read_source_v1,
        projections.find_event_v1,
        projections.entity_types_appended_v1,
        projections.handled_v1,
        projections.why_waiting_v1,
        projections.predecessors_v1,
        projections.timeline_v1,
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
        projections.conditions_apart_v1,
        projections.partition_holders_v1,
        projections.unread_rows_v1,
        projections.maintenance_steps_v1,
        projections.settled_matches_v1,
        projections.check_place_v1,
        projections.read_next_v1,
        projections.replay_length_v1,
        projections.log_any_of_v1,
        projections.log_walk_v1,
        projections.log_key_v1,
        projections.log_walked_v1,
        projections.log_few_events_v1,
        projections.log_bucket_v1,
        projections.list_logged_events_v1,
        projections.list_logged_attempts_v1,
        projections.log_metrics_v1
    TO projections_reader;
END;
$$;
