"""Every function of the schema runs, finds what it names, and is as volatile as its file says."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from journal.schema import sql_root

FILES = {path.stem: path.read_text() for path in sorted((sql_root() / "functions").glob("*/*.sql"))}
VOLATILITY = {"IMMUTABLE": "i", "STABLE": "s", "VOLATILE": "v"}

PARTITION = "'projections.events_20190101t000000'"

EVENTS = "ARRAY[('a', 1, now(), 97, 'Landed', now(), NULL, 'plane')::projections.events_to_match]"
TO_MATCH = f"{EVENTS}, ARRAY[(1, 'Landed', 1, '{{1}}', 'plane')::projections.interests]"

# One call of each, in an order in which each finds something to do.
POLICY = json.dumps(
    {
        "timeout": 15, "schedule": [5], "breaker_failures": 10,
        "breaker_pause": {"first": 30, "longest": 600, "jitter": 0.2},
        "disable_after_failures": 100, "disable_after": 432000,
    }
)  # fmt: skip
CALLS = {
    "slice_of_v1": "SELECT projections.slice_of_v1('a')",
    "uuid7_v1": "SELECT projections.uuid7_v1(now())",
    "uuid7_time_v1": "SELECT projections.uuid7_time_v1(projections.uuid7_v1(now()))",
    "checked_json_v1": r"SELECT projections.checked_json_v1('{\"a\": \"\u00e9\"}')".replace('\\"', '"'),
    "lock_sources_v1": "SELECT projections.lock_sources_v1('{a}', '{plane}')",
    "append_event_v1": "SELECT projections.append_event_v1('a', 'plane', 'Landed', '{}', "
    "p_expected_seq_nr => 0)",
    "append_events_v1": "SELECT projections.append_events_v1('{a,b}', '{plane,plane}', '{L,L}', '{1,2}', "
    "p_event_ids => ARRAY[projections.uuid7_v1(now()), NULL])",
    "same_json_v1": "SELECT projections.same_json_v1('{\"a\": 1}', '{\"a\":1}')",
    "same_event_ids_v1": "SELECT projections.same_event_ids_v1("
    "'{a}', '{Landed}', '{1}', '{\"{}\"}', '{NULL}', '{NULL}', "
    "ARRAY(SELECT event_id FROM projections.events WHERE source_id = 'a' AND seq_nr = 1))",
    "event_bytes_v1": "SELECT projections.event_bytes_v1('{}', NULL)",
    "read_events_by_slices_v1": "SELECT projections.read_events_by_slices_v1('{plane}', 0, 1023, "
    "'1970-01-01Z', -1, '', 0, 'infinity', 10)",
    "read_keys_by_slices_v1": "SELECT projections.read_keys_by_slices_v1('{plane}', 0, 1023, "
    "'1970-01-01Z', -1, '', 0, 'infinity', 10)",
    "load_events_v1": "SELECT projections.load_events_v1(array_agg(source_id), array_agg(seq_nr), "
    "array_agg(db_timestamp)) FROM projections.events",
    "read_source_v1": "SELECT projections.read_source_v1('a', 1, 9, b, 10) "
    "FROM (VALUES (true), (false)) AS v (b)",
    "find_event_v1": "SELECT projections.find_event_v1(event_id) FROM projections.events",
    "timeline_v1": "SELECT projections.timeline_v1()",
    "generation_v1": "SELECT projections.generation_v1()",
    "predecessors_v1": "SELECT projections.predecessors_v1('{a}', '{2}', '-infinity', now())",
    "merged_end_v1": "SELECT projections.merged_end_v1('{plane,ship}', now(), 'infinity')",
    "merged_types_v1": "SELECT projections.merged_types_v1('{plane,ship}', 'e.seq_nr')",
    "newest_events_v1": "SELECT projections.newest_events_v1('{plane}', ARRAY[now()])",
    "latest_seq_nr_v1": "SELECT projections.latest_seq_nr_v1('a')",
    "few_partitions_v1": "SELECT projections.few_partitions_v1()",
    "page_end_v1": "SELECT projections.page_end_v1('2020-01-01Z', 'infinity', n) FROM generate_series(1, 2) AS n",
    "replayed_until_v1": "SELECT projections.replayed_until_v1()",
    "poll_writers_v1": "SELECT projections.poll_writers_v1(0, '{plane}', ARRAY[now()])",
    "writers_in_flight_v1": "SELECT projections.writers_in_flight_v1()",
    "notify_appended_v1": "SELECT projections.notify_appended_v1()",
    "import_events_v1": "SELECT projections.import_events_v1()",
    "move_imported_v1": "SELECT projections.move_imported_v1()",
    "missing_partitions_v1": "SELECT projections.missing_partitions_v1()",
    "create_partition_v1": "SELECT projections.create_partition_v1('2019-01-01Z', '2019-01-02Z'), "
    "projections.create_partition_v1('2019-01-01Z', '2019-01-02Z', 'matches')",
    "partition_bounds_v1": f"SELECT projections.partition_bounds_v1({PARTITION}::regclass)",
    "partitioned_table_v1": "SELECT projections.partitioned_table_v1('events')",
    "partition_settings_v1": f"SELECT projections.partition_settings_v1({PARTITION}::regclass, 'a')",
    "partition_indexes_v1": f"SELECT projections.partition_indexes_v1({PARTITION}::regclass, 'a')",
    "cluster_partition_v1": "SELECT projections.cluster_partition_v1('events_20190101t000000')",
    "swap_partition_v1": "SELECT projections.swap_partition_v1('events_20190101t000000')",
    "lock_partition_v1": "SELECT projections.lock_partition_v1('events_20190101t000000', 1, '0')",
    "replace_partition_v1": "SELECT projections.replace_partition_v1("
    f"'events_20190101t000000', 'events_copy_of_' || {PARTITION}::regclass::oid) "
    "FROM (SELECT projections.cluster_partition_v1('events_20190101t000000')) AS copied",
    "drop_partition_copies_v1": "SELECT projections.drop_partition_copies_v1()",
    "group_holders_v1": "SELECT projections.group_holders_v1()",
    "projection_holders_v1": "SELECT projections.projection_holders_v1()",
    "lock_within_v1": "SELECT projections.lock_within_v1('{projections.rebuilds IN SHARE MODE}')",
    "newly_held_v1": "SELECT projections.newly_held_v1(p, '{}') FROM projections.partitions AS p",
    "retention_holders_v1": "SELECT projections.retention_holders_v1()",
    "partition_holders_v1": "SELECT projections.partition_holders_v1()",
    "unread_rows_v1": "SELECT projections.unread_rows_v1('events_20190101t000000')",
    "drop_partition_v1": "SELECT projections.drop_partition_v1('matches_20190101t000000')",
    "passed_ranges_v1": "SELECT projections.passed_ranges_v1('{ship}', now())",
    "pass_restored_v1": "SELECT projections.pass_restored_v1("
    "1, '{[0,1024)}', '2019-01-02Z', '{N1}', '{1}', '{1}', '{2019-01-01Z}')",
    "read_restored_v1": "SELECT projections.read_restored_v1('{ship}', now(), now())",
    "maintenance_steps_v1": "SELECT projections.maintenance_steps_v1()",
    "maintain_v1": "SELECT projections.maintain_v1()",
    "take_turn_v1": "SELECT projections.take_turn_v1('maintenance', '1 day')",
    "register_projection_v1": "SELECT projections.register_projection_v1('delays', '{plane}')",
    "remove_projection_v1": "SELECT projections.remove_projection_v1('nobody')",
    "set_ranges_v1": "SELECT projections.set_ranges_v1(1, '{0,512}')",
    "share_ranges_v1": "SELECT projections.share_ranges_v1('{0,342,683}', '{a,NULL,gone}', '{a,b}')",
    "assign_ranges_v1": "SELECT projections.assign_ranges_v1(1)",
    "cut_v1": "SELECT projections.cut_v1('{0,512}')",
    "uneven_v1": "SELECT projections.uneven_v1('{1}')",
    "same_generation_v1": "SELECT projections.same_generation_v1('worker', 0, NULL, NULL)",
    "heartbeat_v1": "SELECT projections.heartbeat_v1('worker', '', 1, '10 s', '{1}', '{delays}', '{1}', false, 0, 1, "
    "ARRAY['{plane}'])",
    "claim_range_v1": "SELECT projections.claim_range_v1(1, 0, 'worker')",
    "fail_range_v1": "SELECT projections.fail_range_v1(1, 0, 1, 1, 'why', '1 s')",
    "save_most_offsets_v1": "SELECT projections.save_most_offsets_v1(1, '{gone}', '{1}', '{2}', ARRAY[now()])",
    "save_evicted_offsets_v1": "SELECT projections.save_evicted_offsets_v1(1, '{gone}', '{1}', '{2}', ARRAY[now()])",
    "save_offsets_v1": "SELECT projections.save_offsets_v1(1, 0, "
    "(SELECT epoch FROM projections.projection_ranges WHERE min_slice = 0), "
    "'worker', 0, 0, NULL, NULL, 'batch', now(), 0, '{a}', '{97}', '{}', '{1}', ARRAY[now()], 1)",
    "handled_v1": "SELECT projections.handled_v1('{delays}', '{a}', '{1}', ARRAY[now()])",
    "note_reactions_v1": "SELECT projections.note_reactions_v1('delays', '{a}', '{1}')",
    "begin_inline_v1": "SELECT projections.begin_inline_v1('{delays}', '{1}', ARRAY['{plane}'], '{a}', '{plane}', "
    "'{1}', '{1}', ARRAY[now()], ARRAY[now()])",
    "lock_inline_v1": "SELECT projections.lock_inline_v1(1)",
    "set_mode_v1": "SELECT projections.set_mode_v1(1, 'inline')",
    "why_waiting_v1": "SELECT projections.why_waiting_v1('delays', 'a')",
    "entity_types_appended_v1": "SELECT projections.entity_types_appended_v1('{a}', '{1}', ARRAY[now()])",
    "save_horizons_v1": "SELECT projections.save_horizons_v1(1, '{0}', '{1}', 'worker', '{0}', 0, NULL, NULL, "
    "ARRAY[now()], '{0}')",
    "read_offsets_v1": "SELECT projections.read_offsets_v1(1, '{a}')",
    "park_source_v1": "SELECT projections.park_source_v1(1, 'a', 97, 2, 'Landed', 'why', 1)",
    "table_shape_v1": "SELECT projections.table_shape_v1('rebuilt.delays')",
    "index_shapes_v1": "SELECT projections.index_shapes_v1('rebuilt.delays')",
    "only_key_v1": "SELECT projections.only_key_v1('rebuilt.delays')",
    "unfit_for_rename_v1": "SELECT projections.unfit_for_rename_v1('rebuilt.delays')",
    "begin_rebuild_v1": "SELECT projections.begin_rebuild_v1(1, 0, 1023, 1, now(), 0, 'code', 'rename', "
    "'{0}', '{1023}', ARRAY['rebuilt.delays'::regclass::oid], '{true}', '{carrier}', '{NULL}', '{plane}')",
    "lock_rebuild_part_v1": "SELECT projections.lock_rebuild_part_v1(1, 0)",
    "clone_table_v1": "SELECT projections.clone_table_v1('rebuilt.carriers', 'projections_rebuild_1')",
    "copy_names_v1": "SELECT projections.copy_names_v1('rebuilt.delays', 'projections_rebuild_1.delays')",
    "copy_grants_v1": "SELECT projections.copy_grants_v1('rebuilt.delays', 'projections_rebuild_1.delays')",
    "copy_foreign_keys_v1": "SELECT projections.copy_foreign_keys_v1("
    "'rebuilt.delays', 'projections_rebuild_1.delays')",
    "validate_foreign_keys_v1": "SELECT projections.validate_foreign_keys_v1("
    "'rebuilt.delays', 'projections_rebuild_1.delays')",
    "drop_foreign_keys_v1": "SELECT projections.drop_foreign_keys_v1('projections_rebuild_1.delays')",
    "cancel_rebuild_v1": "SELECT projections.cancel_rebuild_v1(1)",
    "beat_rebuild_v1": "SELECT projections.beat_rebuild_v1(b.rebuild_id, b.started_at, b.beats) "
    "FROM projections.rebuilds AS b WHERE b.rebuild_id = 2",
    "swap_rebuild_v1": "SELECT projections.swap_rebuild_v1(2)",
    "replace_rows_v1": "SELECT projections.replace_rows_v1(b, 'rebuilt.delays', NULL) "
    "FROM projections.rebuilds AS b WHERE b.rebuild_id = 3",
    "move_offsets_v1": "SELECT projections.move_offsets_v1(b) FROM projections.rebuilds AS b WHERE b.rebuild_id = 3",
    "as_jsonb_v1": "SELECT projections.as_jsonb_v1('{}')",
    "create_group_v1": "SELECT projections.create_group_v1('g')",
    "topic_patterns_v1": "SELECT projections.topic_patterns_v1('{Landed,Off*}')",
    "subscribe_v1": "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0', '{}', '1 hour', '{Landed,Off*}', '{plane}')",
    "keep_subscriptions_v1": "SELECT projections.keep_subscriptions_v1('{1}')",
    "expire_subscriptions_v1": "SELECT projections.expire_subscriptions_v1()",
    "drop_condition_v1": "SELECT projections.drop_condition_v1(0)",
    "forget_conditions_v1": "SELECT projections.forget_conditions_v1()",
    "remove_group_v1": "SELECT projections.remove_group_v1('absent')",
    "condition_id_v1": "SELECT projections.condition_id_v1('e.topic IS NULL')",
    "compile_condition_v1": "SELECT projections.compile_condition_v1(9, 'e.topic IS NULL')",
    "in_flight_since_v1": "SELECT projections.in_flight_since_v1()",
    "check_condition_v1": "SELECT projections.check_condition_v1(10, 'e.topic IS NULL')",
    "check_condition_is_harmless_v1": "SELECT projections.check_condition_is_harmless_v1(c.oid) "
    "FROM pg_class AS c WHERE FALSE",
    "make_condition_v1": "SELECT projections.make_condition_v1(8, 'TRUE')",
    "quarantine_condition_v1": "SELECT projections.quarantine_condition_v1(2, 'why')",
    "check_conditions_v1": "SELECT projections.check_conditions_v1()",
    "release_condition_v1": "SELECT projections.release_condition_v1(2)",
    "conditions_apart_v1": "SELECT projections.conditions_apart_v1()",
    "judge_condition_v1": "SELECT projections.judge_condition_v1(2, 1, 0, 'why')",
    "keep_unasked_v1": f"SELECT projections.keep_unasked_v1('{{1}}', {TO_MATCH})",
    "next_unasked_v1": "SELECT projections.next_unasked_v1(1, 10)",
    "match_unasked_v1": "SELECT projections.match_unasked_v1(1, 1, 1, 1)",
    "pass_unasked_v1": "SELECT projections.pass_unasked_v1()",
    "next_unanswered_v1": "SELECT projections.next_unanswered_v1(1, 10)",
    "match_unanswered_v1": "SELECT projections.match_unanswered_v1(1, '{1}')",
    "retry_unanswered_v1": "SELECT projections.retry_unanswered_v1(1)",
    "drop_unanswered_v1": "SELECT projections.drop_unanswered_v1(1)",
    "wanted_topics_v1": "SELECT projections.wanted_topics_v1('plane', '{Landed}')",
    "wanted_conditions_v1": "SELECT projections.wanted_conditions_v1('plane', '{Landed}')",
    "types_v1": "SELECT projections.types_v1('plane', '{Landed}')",
    "matchable_events_v1": "SELECT projections.matchable_events_v1('{a}', '{1}', ARRAY[now()])",
    "ask_condition_v1": "SELECT projections.ask_condition_v1(2, '{}', '{}', '{}', TRUE)",
    "ask_alone_v1": "SELECT projections.ask_alone_v1(1, '{plane}', '{a}', '{1}', ARRAY[now()], '{Landed}')",
    "subscriptions_state_v1": "SELECT projections.subscriptions_state_v1()",
    "look_at_matching_v1": "SELECT projections.look_at_matching_v1()",
    "interests_v1": "SELECT projections.interests_v1('plane', '{Landed,NULL}')",
    "asked_events_v1": f"SELECT projections.asked_events_v1({TO_MATCH})",
    "lock_matching_v1": "SELECT projections.lock_matching_v1()",
    "match_as_given_v1": f"SELECT projections.match_as_given_v1({TO_MATCH}, '{{}}', '{{}}')",
    "match_events_v1": f"SELECT projections.match_events_v1({TO_MATCH})",
    "publish_v1": "SELECT projections.publish_v1('p', '{t}', '{1}', p_not_before => ARRAY[now()])",
    "match_log_v1": "SELECT projections.match_log_v1('{plane}', '{a}', '{1}', ARRAY[now()], '{97}', '{Landed}')",
    "match_due_v1": "SELECT projections.match_due_v1()",
    "entity_types_v1": "SELECT projections.entity_types_v1()",
    "begin_matching_v1": "SELECT projections.begin_matching_v1()",
    "assign_group_v1": "SELECT projections.assign_group_v1(1)",
    "poll_group_v1": "SELECT projections.poll_group_v1('g', 'reader')",
    "settled_matches_v1": "SELECT projections.settled_matches_v1()",
    "read_next_v1": "SELECT projections.read_next_v1('g', 0, 1023, 0, 9, 10, '{1}')",
    "replay_length_v1": "SELECT projections.replay_length_v1('g', 1, 0, 9, 10)",
    "move_cursor_v1": "SELECT projections.move_cursor_v1('g', 0, 1, 0)",
    "fail_batch_v1": "SELECT projections.fail_batch_v1('g', 'handler', 1, 'why', '0 s', '[{\"match_id\": 1}]')",
    "check_place_v1": "SELECT projections.check_place_v1('g', 0, now())",
    "register_handler_v1": "SELECT projections.register_handler_v1('g', 'handler', 1)",
    "set_handlers_apart_v1": "SELECT projections.set_handlers_apart_v1(1, 0, 0, '{}')",
    "join_handler_v1": "SELECT projections.join_handler_v1('g', 0, 1, 'reader')",
    "give_up_handler_v1": "SELECT projections.give_up_handler_v1('g', 'handler')",
    "check_group_range_v1": "SELECT projections.check_group_range_v1('g', 0, 1, 'reader', 0, 0, NULL)",
    "finish_retry_v1": "SELECT projections.finish_retry_v1(1, now())",
    "take_retries_v1": "SELECT projections.take_retries_v1('g', '{handler}')",
    "lock_batches_v1": "SELECT projections.lock_batches_v1('g', 1, TRUE)",
    "retry_batches_v1": "SELECT projections.retry_batches_v1('g', 1)",
    "drop_batches_v1": "SELECT projections.drop_batches_v1('g')",
    "release_group_range_v1": "SELECT projections.release_group_range_v1('g', 0, 1)",
    "cut_group_v1": "SELECT projections.cut_group_v1('g', '{0,512}')",
    "history_interests_v1": f"SELECT projections.history_interests_v1(1, {EVENTS})",
    "begin_history_v1": "SELECT projections.begin_history_v1()",
    "next_history_v1": "SELECT projections.next_history_v1(1, 10)",
    "match_history_v1": "SELECT projections.match_history_v1(1, 'a', 1, 1)",
    "finish_history_v1": "SELECT projections.finish_history_v1(1, 10)",
    "rewind_group_v1": "SELECT projections.rewind_group_v1('g', '-infinity')",
    "unsubscribe_v1": "SELECT projections.unsubscribe_v1(1)",
    "capture_table_v1": "SELECT projections.capture_table_v1('captured.orders', p_serializer => 'captured.shape')",
    "check_capturable_v1": "SELECT projections.check_capturable_v1('captured.orders')",
    "describe_changes_v1": "INSERT INTO captured.orders VALUES (1) RETURNING id",
    "note_move_v1": "UPDATE captured.days SET day = 2 RETURNING day",
    "append_changes_v1": "UPDATE captured.orders SET id = 2 RETURNING id",
    "refuse_truncate_v1": "SELECT captured.truncate_refused()",
    "release_table_v1": "SELECT projections.release_table_v1('captured.orders')",
    "set_capture_triggers_v1": "SELECT projections.set_capture_triggers_v1('captured.orders', '{INSERT}', '{}')",
    "log_any_of_v1": "SELECT projections.log_any_of_v1('e.tenant', '{t}')",
    "log_key_v1": "SELECT projections.log_key_v1('event', NULL, '{a,b}', '{c}')",
    "log_walked_v1": "SELECT projections.log_walked_v1('webhook_events', 'r.data', 'SELECT 1', NULL, NULL, NULL, NULL, "
    "'r.event_time', 1, 10, 1)",
    "log_few_events_v1": "SELECT projections.log_few_events_v1('{a}', NULL, 1)",
    "log_walk_v1": "SELECT projections.log_walk_v1('time', 'id', now(), NULL, NULL, now(), true, now(), 'a', true)",
    "log_bucket_v1": "SELECT projections.log_bucket_v1('time', '1 month', '1970-01-01Z')",
    "list_logged_events_v1": "SELECT projections.list_logged_events_v1('{t}', '{e}', '{p}', '{a,b}')",
    "list_logged_attempts_v1": "SELECT projections.list_logged_attempts_v1('{t}', p_status => 'failed')",
    "log_metrics_v1": "SELECT projections.log_metrics_v1('event', now() - interval '1 day', now(), '1 hour', "
    """p_dimensions => '{endpoint_id}', p_filters => '{"endpoint_id": ["p"]}')""",
    "forget_logged_ids_v1": "SELECT projections.forget_logged_ids_v1()",
    "log_events_v1": "SELECT projections.log_events_v1('{e}', '{t}', '{topic}', ARRAY[now()], '{true}', "
    """'{"[\\"endpoint\\"]"}', '{NULL}', '{7}')""",
    "log_attempts_v1": "SELECT projections.log_attempts_v1('{a,a}', '{t,t}', '{e,e}', ARRAY[now(), now()], "
    "'{topic,topic}', '{p,p}', '{webhook,webhook}', '{1,1}', '{f,f}', '{failed,success}', ARRAY[now(), now()], "
    "'{500,200}', '{NULL,NULL}', '{1 s,1 s}')",
    "slice_lag_v1": "SELECT projections.slice_lag_v1()",
    "unmatched_events_v1": "SELECT projections.unmatched_events_v1()",
    "group_lag_v1": "SELECT projections.group_lag_v1()",
    "evict_offsets_v1": "SELECT projections.evict_offsets_v1(1, '1 day', '')",
    "release_range_v1": "SELECT projections.release_range_v1(1, 0, 2, 'worker', 0, 0, NULL, NULL, now(), 0)",
    "take_over_v1": "SELECT projections.take_over_v1('worker', '{1}', '{1}')",
    "leave_v1": "SELECT projections.leave_v1('worker')",
    "set_offset_v1": "SELECT projections.set_offset_v1(1, now())",
    "tell_of_endpoint_v1": "SELECT projections.tell_of_endpoint_v1('ep_1', 'acme', 'WebhookEndpointPaused', '{}')",
    "create_endpoint_v1": "SELECT projections.create_endpoint_v1('ep_1', 'acme', "
    f'\'{{"url": "https://example.com", "policy": {POLICY}}}\', \'plain:whsec_\')',
    "lock_endpoint_v1": "SELECT projections.lock_endpoint_v1('acme', 'ep_1', NULL)",
    "change_endpoint_v1": "SELECT projections.change_endpoint_v1('acme', 'ep_1', '{\"rate_limit\": 5}')",
    "rotate_secret_v1": "SELECT projections.rotate_secret_v1('acme', 'ep_1', 'plain:whsec_2', '1 day')",
    "recall_answer_v1": "SELECT projections.recall_answer_v1('acme', 'k')",
    "keep_answer_v1": "SELECT projections.keep_answer_v1('acme', 'k', 'plain:{}', '1 day', 10)",
    "forget_answers_v1": "SELECT projections.forget_answers_v1()",
    "fan_out_v1": "SELECT projections.fan_out_v1('{e1,e2}', ARRAY[now() + interval '1 day', now() + interval '1 day'], "
    "'{acme,acme}', '{a,b}', '{k,k}', '{NULL,NULL}', '{t,t}', '{\"{}\",\"{}\"}', '{1,2}', '{1,2}', '{ep_1,ep_1}')",
    "policy_within_limits_v1": f"SELECT projections.policy_within_limits_v1('{POLICY}')",
    "refill_rate_limit_v1": "SELECT projections.refill_rate_limit_v1(2, 0, now(), now())",
    "claim_deliveries_v1": "SELECT projections.claim_deliveries_v1(10, 'ep_0')",
    "lock_deliveries_v1": "SELECT projections.lock_deliveries_v1('{1}')",
    "follow_on_v1": "SELECT projections.follow_on_v1('{1}')",
    "judge_endpoint_v1": "SELECT projections.judge_endpoint_v1('ep_1', '{retry,done,dead}', '1 minute', TRUE)",
    "finish_deliveries_v1": "SELECT projections.finish_deliveries_v1("
    "(SELECT array_agg(delivery_id) FROM projections.webhook_deliveries), "
    "(SELECT array_agg(lease_token) FROM projections.webhook_deliveries), "
    "'{dead,retry}', '{NULL,1s}', '{NULL,NULL}', '{f,f}', '{500,500}', '{no,no}', '{1s,1s}')",
    "reap_deliveries_v1": "SELECT projections.reap_deliveries_v1()",
    "set_endpoint_state_v1": "SELECT projections.set_endpoint_state_v1('acme', 'ep_1', 'active', NULL)",
    "decide_delivery_v1": "SELECT projections.decide_delivery_v1('retry', 'acme', 'ep_1', 'e1')",
    "decide_deliveries_v1": (
        "SELECT projections.decide_deliveries_v1('drop', 'acme', 'ep_1', '{dead}', '{a}', NULL, now())"
    ),
    "endpoint_backlog_v1": "SELECT projections.endpoint_backlog_v1('acme')",
    "endpoint_stats_v1": "SELECT projections.endpoint_stats_v1('acme', '1 hour', 100, 10)",
    "webhook_totals_v1": "SELECT projections.webhook_totals_v1()",
    "forget_deliveries_v1": "SELECT projections.forget_deliveries_v1()",
    "release_waiting_v1": "SELECT projections.release_waiting_v1()",
    "check_room_v1": "SELECT projections.check_room_v1('endpoints', 'acme', 100)",
    "check_schedule_endpoint_v1": "SELECT projections.check_schedule_endpoint_v1('acme', 'ep_1')",
    "create_schedule_v1": "SELECT projections.create_schedule_v1('sch_1', 'acme', 'nightly', '@daily', 'UTC', "
    "'report', '1', 'ep_1', 'one', '2020-01-01Z')",
    "lock_schedule_v1": "SELECT projections.lock_schedule_v1('acme', 'sch_1', NULL)",
    "change_schedule_v1": "SELECT projections.change_schedule_v1('acme', 'sch_1', '{\"missed\": \"all\"}')",
    "note_standstill_v1": "SELECT projections.note_standstill_v1('2020-01-01Z', '2020-01-02Z')",
    "watch_schedules_v1": "SELECT projections.watch_schedules_v1()",
    "claim_schedules_v1": "SELECT projections.claim_schedules_v1()",
    "advance_schedules_v1": "SELECT projections.advance_schedules_v1('{sch_1}', '{2020-01-01Z}', ARRAY[now()], "
    "ARRAY[now()], '{NULL}', ARRAY[interval '0'])",
    "next_schedule_v1": "SELECT projections.next_schedule_v1()",
    "remove_schedule_v1": "SELECT projections.remove_schedule_v1('acme', 'sch_1')",
    "remove_endpoint_v1": "SELECT projections.remove_endpoint_v1('acme', 'ep_1')",
}

STAGED = """
CREATE TEMPORARY TABLE projections_restored (
    entity_type text, source_id text, slice smallint, seq_nr bigint, db_timestamp timestamptz
);
INSERT INTO projections_restored VALUES ('plane', 'a', 97, 1, now());
CREATE TEMPORARY TABLE projections_import (
    source_id text, entity_type text, event_type text, payload text, metadata text, tags text,
    version smallint, seq_nr bigint, db_timestamp timestamptz, event_id uuid
)
"""

# A read model, and two rebuilds of another projection: one that is verified, and what the last steps of one work on.
REBUILT = """
CREATE SCHEMA rebuilt;
CREATE TABLE rebuilt.carriers (carrier text PRIMARY KEY);
CREATE TABLE rebuilt.delays (carrier text PRIMARY KEY REFERENCES rebuilt.carriers, n bigint NOT NULL DEFAULT 0);
"""
VERIFIED = """
SELECT projections.register_projection_v1('other', '{plane}'), projections.register_projection_v1('third', '{plane}');
SELECT projections.begin_rebuild_v1(n, 0, 1023, 1, now(), 0, 'code', m, '{0}', '{1023}',
    ARRAY['rebuilt.delays'::regclass::oid], '{false}', '{NULL}', '{NULL}', '{plane}')
FROM (VALUES (2, 'rename'), (3, 'replace')) AS v (n, m);
CREATE TABLE projections_rebuild_2._last (source_id text, slice smallint, seq_nr bigint, db_timestamp timestamptz);
CREATE TABLE projections_rebuild_3._last (LIKE projections_rebuild_2._last);
CREATE SCHEMA projections_old_3;
UPDATE projections.rebuilds SET state = 'verified' WHERE rebuild_id IN (2, 3);
"""

# A table to be captured, and a TRUNCATE of it that goes on when it is refused.
CAPTURED = """
CREATE SCHEMA captured;
CREATE TABLE captured.orders (id integer PRIMARY KEY);
CREATE TABLE captured.days (day integer PRIMARY KEY) PARTITION BY LIST (day);
CREATE TABLE captured.any_day PARTITION OF captured.days DEFAULT;
INSERT INTO captured.days VALUES (1);
SELECT projections.capture_table_v1('captured.days');
CREATE FUNCTION captured.shape(text, jsonb, jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce($3, $2);
CREATE FUNCTION captured.truncate_refused() RETURNS void LANGUAGE plpgsql AS $$
BEGIN TRUNCATE captured.orders; EXCEPTION WHEN SQLSTATE 'PJ061' THEN NULL; END $$;
"""


@pytest.fixture
def connection(dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(dsn) as connection:
        yield connection


def declared_volatility(text: str) -> str:
    head = text.partition("AS $$")[0].partition("LANGUAGE")[2]
    return next((VOLATILITY[word] for word in head.split() if word in VOLATILITY), "v")


def test_every_file_is_one_function_that_bears_its_name(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'projections'::regnamespace ORDER BY 1"
    ).fetchall()

    assert [name for (name,) in found] == sorted(FILES)
    for name, text in FILES.items():
        assert re.findall(r"^CREATE OR REPLACE FUNCTION (\S+)\(", text, re.MULTILINE) == [
            f"projections.{name}"
        ]


def test_functions_are_as_volatile_as_their_files_say(connection: psycopg.Connection[Any]) -> None:
    found = dict(
        connection.execute(
            "SELECT proname, provolatile FROM pg_proc WHERE pronamespace = 'projections'::regnamespace"
        ).fetchall()
    )

    assert found == {name: declared_volatility(text) for name, text in FILES.items()}


def test_the_calls_below_are_of_every_function() -> None:
    assert sorted(CALLS) == sorted(FILES)


def test_every_function_runs_without_a_search_path(connection: psycopg.Connection[Any]) -> None:
    connection.execute(
        "SELECT set_config('search_path', '', false), set_config('projections.batch', 'batch', false)"
    )
    connection.execute(STAGED)
    connection.execute(
        "INSERT INTO pg_temp.projections_import VALUES "
        "('old', 'plane', 'Landed', '{}', NULL, '{x}', 1, 1, '2020-01-01Z', NULL)"
    )

    connection.execute(REBUILT)
    connection.execute(CAPTURED)

    for name, call in CALLS.items():
        if name == "swap_rebuild_v1":
            connection.execute(VERIFIED)
        assert connection.execute(call.encode()).description is not None, name


def test_bodies_name_tables_with_their_schema() -> None:
    tables = (
        "rebuild_parts|rebuild_tables|rebuilds|sources|events|imports|projections|projection_ranges|workers|"
        "source_offsets|parked_sources|partitions"
    )
    unqualified = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+(?:{tables})\b(?!\.)")

    assert {name for name, text in FILES.items() if unqualified.search(text)} == set()
