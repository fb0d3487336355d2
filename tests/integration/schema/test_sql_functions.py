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
    "_uuid7_of_v1": "SELECT projections._uuid7_of_v1(now(), gen_random_uuid(), 1)",
    "_uuid7_time_v1": "SELECT projections._uuid7_time_v1(projections.uuid7_v1(now()))",
    "checked_json_v1": r"SELECT projections.checked_json_v1('{\"a\": \"\u00e9\"}')".replace('\\"', '"'),
    "_lock_sources_v1": "SELECT projections._lock_sources_v1('{a}', '{plane}')",
    "append_event_v1": "SELECT projections.append_event_v1('a', 'plane', 'Landed', '{}', "
    "p_expected_seq_nr => 0)",
    "append_events_v1": "SELECT projections.append_events_v1('{a,b}', '{plane,plane}', '{L,L}', '{1,2}', "
    "p_event_ids => ARRAY[projections.uuid7_v1(now()), NULL])",
    "_same_json_v1": "SELECT projections._same_json_v1('{\"a\": 1}', '{\"a\":1}')",
    "_message_types_v1": "SELECT projections._message_types_v1()",
    "_take_message_ids_v1": "SELECT projections._take_message_ids_v1('{published}', ARRAY[gen_random_uuid()])",
    "_hook_maintain_message_ids_v1": "SELECT projections._hook_maintain_message_ids_v1()",
    "_unordered_v1": 'SELECT projections._unordered_v1(\'{"order_key": "a"}\')',
    "_stored_events_v1": "SELECT projections._stored_events_v1("
    "'{a}', '{plane}', '{Landed}', '{1}', '{\"{}\"}', '{NULL}', '{NULL}', "
    "ARRAY(SELECT event_id FROM projections.events WHERE source_id = 'a' AND seq_nr = 1))",
    "_return_numbers_v1": "SELECT projections._return_numbers_v1('{a}', '{1}', '{a}', now())",
    "_event_bytes_v1": "SELECT projections._event_bytes_v1('{}', NULL)",
    "read_events_by_slices_v1": "SELECT projections.read_events_by_slices_v1('{plane}', 0, 1023, "
    "'1970-01-01Z', -1, '', 0, 'infinity', 10)",
    "_read_keys_by_slices_v1": "SELECT projections._read_keys_by_slices_v1('{plane}', 0, 1023, "
    "'1970-01-01Z', -1, '', 0, 'infinity', 10)",
    "_load_events_v1": "SELECT projections._load_events_v1(array_agg(source_id), array_agg(seq_nr), "
    "array_agg(db_timestamp)) FROM projections.events",
    "_events_by_keys_v1": "SELECT projections._events_by_keys_v1(array_agg(source_id), array_agg(seq_nr), "
    "array_agg(db_timestamp)) FROM projections.events",
    "_events_of_page_v1": "SELECT projections._events_of_page_v1('{plane}', 0, 1023, "
    "'1970-01-01Z', -1, '', 0, 'infinity', 10)",
    "_refuse_event_v1": "SELECT projections._refuse_event_v1('no') WHERE now() < '2000-01-01'",
    "read_source_v1": "SELECT projections.read_source_v1('a', 1, 9, b, 10) "
    "FROM (VALUES (true), (false)) AS v (b)",
    "find_event_v1": "SELECT projections.find_event_v1(event_id) FROM projections.events",
    "timeline_v1": "SELECT projections.timeline_v1()",
    "generation_v1": "SELECT projections.generation_v1()",
    "_predecessors_v1": "SELECT projections._predecessors_v1('{a}', '{2}', '-infinity', now())",
    "_merged_end_v1": "SELECT projections._merged_end_v1('{plane,ship}', now(), 'infinity')",
    "_merged_types_v1": "SELECT projections._merged_types_v1('{plane,ship}', 'e.seq_nr')",
    "_newest_events_v1": "SELECT projections._newest_events_v1('{plane}', ARRAY[now()])",
    "latest_seq_nr_v1": "SELECT projections.latest_seq_nr_v1('a')",
    "_few_partitions_v1": "SELECT projections._few_partitions_v1()",
    "_page_end_v1": "SELECT projections._page_end_v1('2020-01-01Z', 'infinity', n) FROM generate_series(1, 2) AS n",
    "_replayed_until_v1": "SELECT projections._replayed_until_v1()",
    "_poll_writers_v1": "SELECT projections._poll_writers_v1(0, '{plane}', ARRAY[now()])",
    "writers_in_flight_v1": "SELECT projections.writers_in_flight_v1()",
    "notify_appended_v1": "SELECT projections.notify_appended_v1()",
    "_import_events_v1": "SELECT projections._import_events_v1()",
    "_move_imported_v1": "SELECT projections._move_imported_v1()",
    "_missing_partitions_v1": "SELECT projections._missing_partitions_v1()",
    "_create_partition_v1": "SELECT projections._create_partition_v1('2019-01-01Z', '2019-01-02Z'), "
    "projections._create_partition_v1('2019-01-01Z', '2019-01-02Z', 'matches')",
    "_partition_bounds_v1": f"SELECT projections._partition_bounds_v1({PARTITION}::regclass)",
    "_partitioned_table_v1": "SELECT projections._partitioned_table_v1('events')",
    "_partition_settings_v1": f"SELECT projections._partition_settings_v1({PARTITION}::regclass, 'a')",
    "_partition_indexes_v1": f"SELECT projections._partition_indexes_v1({PARTITION}::regclass, 'a')",
    "_cluster_partition_v1": "SELECT projections._cluster_partition_v1('events_20190101t000000')",
    "_swap_partition_v1": "SELECT projections._swap_partition_v1('events_20190101t000000')",
    "_lock_patiently_v1": "SELECT projections._lock_patiently_v1('{projections.events IN SHARE MODE}', 1, '0')",
    "_replace_partition_v1": "SELECT projections._replace_partition_v1("
    f"'events_20190101t000000', 'events_copy_of_' || {PARTITION}::regclass::oid) "
    "FROM (SELECT projections._cluster_partition_v1('events_20190101t000000')) AS copied",
    "_drop_partition_copies_v1": "SELECT projections._drop_partition_copies_v1()",
    "_group_holders_v1": "SELECT projections._group_holders_v1()",
    "_projection_holders_v1": "SELECT projections._projection_holders_v1()",
    "_lock_within_v1": "SELECT projections._lock_within_v1('{projections.rebuilds IN SHARE MODE}')",
    "_hooks_v1": "SELECT projections._hooks_v1('holders')",
    "_hook_import_projections_v1": "SELECT projections._hook_import_projections_v1('{plane}', ARRAY[now()])",
    "_hook_holders_projections_v1": "SELECT projections._hook_holders_projections_v1()",
    "_hook_unread_projections_v1": "SELECT projections._hook_unread_projections_v1(p) "
    "FROM projections.partitions AS p",
    "_hook_locks_projections_v1": "SELECT projections._hook_locks_projections_v1()",
    "_hook_places_projections_v1": "SELECT projections._hook_places_projections_v1(p) "
    "FROM projections.partitions AS p",
    "_hook_holders_subscriptions_v1": "SELECT projections._hook_holders_subscriptions_v1()",
    "_hook_unread_subscriptions_v1": "SELECT projections._hook_unread_subscriptions_v1(p) "
    "FROM projections.partitions AS p",
    "_hook_locks_subscriptions_v1": "SELECT projections._hook_locks_subscriptions_v1()",
    "_hook_places_subscriptions_v1": "SELECT projections._hook_places_subscriptions_v1(p) "
    "FROM projections.partitions AS p",
    "_hook_drop_subscriptions_v1": "SELECT projections._hook_drop_subscriptions_v1(p) FROM projections.partitions AS p",
    "_hook_maintain_subscriptions_v1": "SELECT projections._hook_maintain_subscriptions_v1()",
    "_hook_live_only_subscriptions_v1": "SELECT projections._hook_live_only_subscriptions_v1()",
    "_hook_holders_webhooks_v1": "SELECT projections._hook_holders_webhooks_v1()",
    "_hook_maintain_webhooks_v1": "SELECT projections._hook_maintain_webhooks_v1()",
    "_clean_v1": "SELECT projections._clean_v1()",
    "_newly_held_v1": "SELECT projections._newly_held_v1(p, '{}') FROM projections.partitions AS p",
    "_retention_holders_v1": "SELECT projections._retention_holders_v1()",
    "partition_holders_v1": "SELECT projections.partition_holders_v1()",
    "_unread_rows_v1": "SELECT projections._unread_rows_v1('events_20190101t000000')",
    "_content_of_events_v1": "SELECT projections._content_of_events_v1('2019-01-01Z', '2019-01-02Z', 'ship')",
    "_check_archived_v1": "SELECT projections._check_archived_v1(p, 0, 0) FROM projections.partitions AS p "
    "WHERE p.name = 'events_20190101t000000'",
    "_drop_partition_v1": "SELECT projections._drop_partition_v1('matches_20190101t000000')",
    "detach_partition_v1": "SELECT projections.detach_partition_v1(p.name, c.events, c.content) "
    "FROM projections.partitions AS p CROSS JOIN LATERAL projections._content_of_events_v1("
    "p.from_timestamp, p.to_timestamp) AS c WHERE p.name = 'events_20190101t000000'",
    "_passed_ranges_v1": "SELECT projections._passed_ranges_v1('{ship}', now())",
    "_pass_restored_v1": "SELECT projections._pass_restored_v1("
    "1, '{[0,1024)}', '2019-01-02Z', '{N1}', '{1}', '{1}', '{2019-01-01Z}')",
    "_read_restored_v1": "SELECT projections._read_restored_v1('{ship}', now(), now())",
    "_maintenance_steps_v1": "SELECT projections._maintenance_steps_v1()",
    "maintain_v1": "SELECT projections.maintain_v1()",
    "_take_turn_v1": "SELECT projections._take_turn_v1('maintenance', '1 day')",
    "register_projection_v1": "SELECT projections.register_projection_v1('delays', '{plane}')",
    "_remove_projection_v1": "SELECT projections._remove_projection_v1(99)",
    "_part_name_v1": "SELECT projections._part_name_v1('delays', NULL)",
    "_leave_journals_v1": "SELECT projections._leave_journals_v1('delays', NULL, ARRAY[NULL])",
    "_set_ranges_v1": "SELECT projections._set_ranges_v1(1, '{0,512}')",
    "_share_ranges_v1": "SELECT projections._share_ranges_v1('{0,342,683}', '{a,NULL,gone}', '{a,b}')",
    "_assign_ranges_v1": "SELECT projections._assign_ranges_v1(1)",
    "_cut_v1": "SELECT projections._cut_v1('{0,512}')",
    "_uneven_v1": "SELECT projections._uneven_v1('{1}')",
    "_same_generation_v1": "SELECT projections._same_generation_v1('worker', 0, NULL, NULL)",
    "heartbeat_v1": "SELECT projections.heartbeat_v1('worker', '', 1, '10 s', '{1}', '{delays}', '{1}', false, 0, 1, "
    "ARRAY['{plane}'])",
    "_claim_range_v1": "SELECT projections._claim_range_v1(1, 0, 'worker')",
    "_fail_range_v1": "SELECT projections._fail_range_v1(1, 0, 1, 1, 'why', '1 s')",
    "_save_most_offsets_v1": "SELECT projections._save_most_offsets_v1(1, '{gone}', '{1}', '{2}', ARRAY[now()])",
    "_save_evicted_offsets_v1": "SELECT projections._save_evicted_offsets_v1(1, '{gone}', '{1}', '{2}', ARRAY[now()])",
    "save_offsets_v1": "SELECT projections.save_offsets_v1(1, 0, "
    "(SELECT epoch FROM projections.projection_ranges WHERE min_slice = 0), "
    "'worker', 0, 0, NULL, NULL, 'batch', now(), 0, '{a}', '{97}', '{}', '{1}', ARRAY[now()], 1)",
    "_forget_page_v1": "SELECT projections._forget_page_v1(1, now(), '{gone}', '{1}', '{1}', '{2}', ARRAY[now()])",
    "_save_page_v1": "SELECT projections._save_page_v1(1, 0, "
    "(SELECT epoch FROM projections.projection_ranges WHERE min_slice = 0), "
    "'worker', 1, 0, NULL, NULL, 'batch', now(), 0, '{a}', '{97}', '{2}', ARRAY[now()])",
    "_handled_v1": "SELECT projections._handled_v1('{delays}', '{a}', '{1}', ARRAY[now()])",
    "_note_reactions_v1": "SELECT projections._note_reactions_v1(1, '{a}', '{1}')",
    "_begin_inline_v1": "SELECT projections._begin_inline_v1('{delays}', '{1}', ARRAY['{plane}'], '{a}', '{plane}', "
    "'{1}', '{1}', ARRAY[now()], ARRAY[now()])",
    "_write_given_events_v1": "SELECT projections._write_given_events_v1('SELECT $1, $8', '{a}', '{1}', ARRAY[now()], "
    "'{NULL}', '{plane}', '{Landed}', '{1}', '{\"{}\"}')",
    "_lock_inline_v1": "SELECT projections._lock_inline_v1(1)",
    "_set_mode_v1": "SELECT projections._set_mode_v1(1, 'inline')",
    "_why_waiting_v1": "SELECT projections._why_waiting_v1('delays', 'a')",
    "_entity_types_appended_v1": "SELECT projections._entity_types_appended_v1('{a}', '{1}', ARRAY[now()])",
    "save_horizons_v1": "SELECT projections.save_horizons_v1(1, '{0}', '{1}', 'worker', '{0}', 0, NULL, NULL, "
    "ARRAY[now()], '{0}')",
    "read_offsets_v1": "SELECT projections.read_offsets_v1(1, '{a}')",
    "_park_source_v1": "SELECT projections._park_source_v1(1, 'a', 97, 2, 'Landed', 'why', 1)",
    "_table_shape_v1": "SELECT projections._table_shape_v1('rebuilt.delays')",
    "_table_facts_v1": "SELECT projections._table_facts_v1('rebuilt.delays')",
    "_clone_differences_v1": "SELECT projections._clone_differences_v1('rebuilt.delays', 'rebuilt.delays')",
    "_table_settings_v1": "SELECT projections._table_settings_v1('rebuilt.delays', 'rebuilt.delays')",
    "_index_shapes_v1": "SELECT projections._index_shapes_v1('rebuilt.delays')",
    "_only_key_v1": "SELECT projections._only_key_v1('rebuilt.delays')",
    "_unfit_for_rename_v1": "SELECT projections._unfit_for_rename_v1('rebuilt.delays')",
    "_begin_rebuild_v1": "SELECT projections._begin_rebuild_v1(1, 0, 1023, 1, now(), 0, 'code', 'rename', "
    "'{0}', '{1023}', ARRAY['rebuilt.delays'::regclass::oid], '{true}', '{carrier}', '{NULL}', '{plane}')",
    "_last_events_v1": "SELECT projections._last_events_v1('{plane}', 0, 1023, now(), c) "
    "FROM (VALUES (true), (false)) AS v (c)",
    "_lock_rebuild_part_v1": "SELECT projections._lock_rebuild_part_v1(1, 0)",
    "_clone_table_v1": "SELECT projections._clone_table_v1('rebuilt.carriers', 'projections_rebuild_1')",
    "_copy_names_v1": "SELECT projections._copy_names_v1('rebuilt.delays', 'projections_rebuild_1.delays')",
    "_copy_grants_v1": "SELECT projections._copy_grants_v1('rebuilt.delays', 'projections_rebuild_1.delays')",
    "_copy_foreign_keys_v1": "SELECT projections._copy_foreign_keys_v1("
    "'rebuilt.delays', 'projections_rebuild_1.delays')",
    "_validate_foreign_keys_v1": "SELECT projections._validate_foreign_keys_v1("
    "'rebuilt.delays', 'projections_rebuild_1.delays')",
    "_drop_foreign_keys_v1": "SELECT projections._drop_foreign_keys_v1('projections_rebuild_1.delays')",
    "_cancel_rebuild_v1": "SELECT projections._cancel_rebuild_v1(1)",
    "_ranges_alike_v1": "SELECT projections._ranges_alike_v1()",
    "_rebuilds_under_way_v1": "SELECT projections._rebuilds_under_way_v1()",
    "_beat_rebuild_v1": "SELECT projections._beat_rebuild_v1(b.rebuild_id, b.started_at, b.beats) "
    "FROM projections.rebuilds AS b WHERE b.rebuild_id = 2",
    "_swap_rebuild_v1": "SELECT projections._swap_rebuild_v1(2)",
    "_continue_identities_v1": "SELECT projections._continue_identities_v1("
    "'rebuilt.delays', 'projections_rebuild_3.delays', '{number}')",
    "_replace_rows_v1": "SELECT projections._replace_rows_v1(b, 'rebuilt.delays', NULL) "
    "FROM projections.rebuilds AS b WHERE b.rebuild_id = 3",
    "_move_offsets_v1": "SELECT projections._move_offsets_v1(b) FROM projections.rebuilds AS b WHERE b.rebuild_id = 3",
    "_as_jsonb_v1": "SELECT projections._as_jsonb_v1('{}')",
    "create_group_v1": "SELECT projections.create_group_v1('g')",
    "_topic_patterns_v1": "SELECT projections._topic_patterns_v1('{Landed,Off*}')",
    "subscribe_v1": "SELECT projections.subscribe_v1('g', 'e.seq_nr > 0', '{}', '1 hour', '{Landed,Off*}', '{plane}')",
    "keep_subscriptions_v1": "SELECT projections.keep_subscriptions_v1('{1}')",
    "_expire_subscriptions_v1": "SELECT projections._expire_subscriptions_v1()",
    "_drop_condition_v1": "SELECT projections._drop_condition_v1(0)",
    "_forget_conditions_v1": "SELECT projections._forget_conditions_v1()",
    "remove_group_v1": "SELECT projections.remove_group_v1('absent')",
    "_condition_id_v1": "SELECT projections._condition_id_v1('e.topic IS NULL')",
    "_compile_condition_v1": "SELECT projections._compile_condition_v1(9, 'e.topic IS NULL')",
    "_in_flight_since_v1": "SELECT projections._in_flight_since_v1()",
    "_check_condition_v1": "SELECT projections._check_condition_v1(10, 'e.topic IS NULL')",
    "_check_condition_is_harmless_v1": "SELECT projections._check_condition_is_harmless_v1(c.oid) "
    "FROM pg_class AS c WHERE FALSE",
    "_looks_up_params_v1": "SELECT projections._looks_up_params_v1('{BOOLEXPR}')",
    "_make_condition_v1": "SELECT projections._make_condition_v1(8, 'TRUE')",
    "_quarantine_condition_v1": "SELECT projections._quarantine_condition_v1(2, 'why')",
    "_check_conditions_v1": "SELECT projections._check_conditions_v1()",
    "_release_condition_v1": "SELECT projections._release_condition_v1(2)",
    "_conditions_apart_v1": "SELECT projections._conditions_apart_v1()",
    "_judge_condition_v1": "SELECT projections._judge_condition_v1(2, 1, 0, 'why')",
    "_keep_unasked_v1": f"SELECT projections._keep_unasked_v1('{{1}}', {TO_MATCH})",
    "_next_unasked_v1": "SELECT projections._next_unasked_v1(1, 10)",
    "_match_unasked_v1": "SELECT projections._match_unasked_v1(1, 1, 1, 1)",
    "_pass_unasked_v1": "SELECT projections._pass_unasked_v1()",
    "_next_unanswered_v1": "SELECT projections._next_unanswered_v1(1, 10)",
    "_match_unanswered_v1": "SELECT projections._match_unanswered_v1(1, '{1}')",
    "_retry_unanswered_v1": "SELECT projections._retry_unanswered_v1(1)",
    "_drop_unanswered_v1": "SELECT projections._drop_unanswered_v1(1)",
    "_wanted_topics_v1": "SELECT projections._wanted_topics_v1('plane', '{Landed}')",
    "_wanted_conditions_v1": "SELECT projections._wanted_conditions_v1('plane', '{Landed}')",
    "_types_v1": "SELECT projections._types_v1('plane', '{Landed}')",
    "_older_events_v1": "SELECT projections._older_events_v1('{a}', '{1}', ARRAY[now()], '{2}')",
    "_matchable_events_v1": "SELECT projections._matchable_events_v1('{a}', '{1}', ARRAY[now()])",
    "_ask_condition_v1": "SELECT projections._ask_condition_v1(2, '{}', '{}', '{}', TRUE)",
    "_ask_alone_v1": "SELECT projections._ask_alone_v1(1, '{plane}', '{a}', '{1}', ARRAY[now()], '{Landed}')",
    "_subscriptions_state_v1": "SELECT projections._subscriptions_state_v1()",
    "_look_at_matching_v1": "SELECT projections._look_at_matching_v1()",
    "_interests_v1": "SELECT projections._interests_v1('plane', '{Landed,NULL}')",
    "_asked_events_v1": f"SELECT projections._asked_events_v1({TO_MATCH})",
    "_lock_matching_v1": "SELECT projections._lock_matching_v1()",
    "_match_as_given_v1": f"SELECT projections._match_as_given_v1({TO_MATCH}, '{{}}', '{{}}')",
    "_match_events_v1": f"SELECT projections._match_events_v1({TO_MATCH})",
    "publish_v1": "SELECT projections.publish_v1('p', '{t}', '{1}', p_not_before => ARRAY[now()])",
    "_match_log_v1": "SELECT projections._match_log_v1('{plane}', '{a}', '{1}', ARRAY[now()], '{97}', '{Landed}')",
    "_match_due_v1": "SELECT projections._match_due_v1()",
    "_entity_types_v1": "SELECT projections._entity_types_v1()",
    "_begin_matching_v1": "SELECT projections._begin_matching_v1()",
    "_assign_group_v1": "SELECT projections._assign_group_v1(1)",
    "poll_group_v1": "SELECT projections.poll_group_v1('g', 'reader')",
    "settled_matches_v1": "SELECT projections.settled_matches_v1()",
    "read_next_v1": "SELECT projections.read_next_v1('g', 0, 1023, 0, 9, 10, '{1}')",
    "_replay_length_v1": "SELECT projections._replay_length_v1('g', 1, 0, 9, 10)",
    "move_cursor_v1": "SELECT projections.move_cursor_v1('g', 0, 1, 0)",
    "fail_batch_v1": "SELECT projections.fail_batch_v1('g', 'handler', 1, 'why', '0 s', '[{\"match_id\": 1}]')",
    "check_place_v1": "SELECT projections.check_place_v1('g', 0, now())",
    "register_handler_v1": "SELECT projections.register_handler_v1('g', 'handler', 1)",
    "_set_handlers_apart_v1": "SELECT projections._set_handlers_apart_v1(1, 0, 0, '{}')",
    "join_handler_v1": "SELECT projections.join_handler_v1('g', 0, 1, 'reader')",
    "_give_up_handler_v1": "SELECT projections._give_up_handler_v1('g', 'handler')",
    "check_group_range_v1": "SELECT projections.check_group_range_v1('g', 0, 1, 'reader', 0, 0, NULL)",
    "finish_retry_v1": "SELECT projections.finish_retry_v1(1, now())",
    "take_retries_v1": "SELECT projections.take_retries_v1('g', '{handler}')",
    "_lock_batches_v1": "SELECT projections._lock_batches_v1('g', 1, TRUE)",
    "retry_batches_v1": "SELECT projections.retry_batches_v1('g', 1)",
    "drop_batches_v1": "SELECT projections.drop_batches_v1('g')",
    "release_group_range_v1": "SELECT projections.release_group_range_v1('g', 0, 1)",
    "_cut_group_v1": "SELECT projections._cut_group_v1('g', '{0,512}')",
    "_history_interests_v1": f"SELECT projections._history_interests_v1(1, {EVENTS})",
    "_begin_history_v1": "SELECT projections._begin_history_v1()",
    "_next_history_v1": "SELECT projections._next_history_v1(1, 10)",
    "_match_history_v1": "SELECT projections._match_history_v1(1, 'a', 1, 1)",
    "_finish_history_v1": "SELECT projections._finish_history_v1(1, 10)",
    "rewind_group_v1": "SELECT projections.rewind_group_v1('g', '-infinity')",
    "unsubscribe_v1": "SELECT projections.unsubscribe_v1(1)",
    "capture_table_v1": "SELECT projections.capture_table_v1('captured.orders', p_serializer => 'captured.shape')",
    "_key_types_v1": "SELECT projections._key_types_v1('captured.orders'::regclass)",
    "_check_capturable_v1": "SELECT projections._check_capturable_v1('captured.orders')",
    "_describe_changes_v1": "INSERT INTO captured.orders VALUES (1) RETURNING id",
    "_note_move_v1": "UPDATE captured.days SET day = 2 RETURNING day",
    "_append_changes_v1": "UPDATE captured.orders SET id = 2 RETURNING id",
    "_refuse_truncate_v1": "SELECT captured.truncate_refused()",
    "release_table_v1": "SELECT projections.release_table_v1('captured.orders')",
    "_set_capture_triggers_v1": "SELECT projections._set_capture_triggers_v1('captured.orders', '{INSERT}', '{}')",
    "_log_any_of_v1": "SELECT projections._log_any_of_v1('e.tenant', '{t}')",
    "_log_key_v1": "SELECT projections._log_key_v1('event', NULL, '{a,b}', '{c}')",
    "_log_walked_v1": "SELECT projections._log_walked_v1('webhook_events', 'r.data', 'SELECT 1', NULL, NULL, NULL, "
    "NULL, 'r.event_time', 1, 10, 1)",
    "_log_few_events_v1": "SELECT projections._log_few_events_v1('{a}', NULL, 1)",
    "_log_walk_v1": "SELECT projections._log_walk_v1('time', 'id', now(), NULL, NULL, now(), true, now(), 'a', true)",
    "_log_bucket_v1": "SELECT projections._log_bucket_v1('time', '1 month', '1970-01-01Z')",
    "_list_logged_events_v1": "SELECT projections._list_logged_events_v1('{t}', '{e}', '{p}', '{a,b}')",
    "_list_logged_attempts_v1": "SELECT projections._list_logged_attempts_v1('{t}', p_status => 'failed')",
    "_log_metrics_v1": "SELECT projections._log_metrics_v1('event', now() - interval '1 day', now(), '1 hour', "
    """p_dimensions => '{endpoint_id}', p_filters => '{"endpoint_id": ["p"]}')""",
    "_forget_logged_ids_v1": "SELECT projections._forget_logged_ids_v1()",
    "_log_events_v1": "SELECT projections._log_events_v1('{e}', '{t}', '{topic}', ARRAY[now()], '{true}', "
    """'{"[\\"endpoint\\"]"}', '{NULL}', '{7}')""",
    "_log_attempts_v1": "SELECT projections._log_attempts_v1('{a,a}', '{t,t}', '{e,e}', ARRAY[now(), now()], "
    "'{topic,topic}', '{p,p}', '{webhook,webhook}', '{1,1}', '{f,f}', '{failed,success}', ARRAY[now(), now()], "
    "'{500,200}', '{NULL,NULL}', '{1 s,1 s}')",
    "slice_lag_v1": "SELECT projections.slice_lag_v1()",
    "_unmatched_events_v1": "SELECT projections._unmatched_events_v1()",
    "group_lag_v1": "SELECT projections.group_lag_v1()",
    "_note_watermark_v1": "SELECT projections._note_watermark_v1('shop', now(), now(), '1 day')",
    "_known_since_v1": "SELECT projections._known_since_v1(1, '{now}')",
    "_may_evict_v1": "SELECT projections._may_evict_v1(1, 0, '1 day')",
    "_evict_up_to_v1": "SELECT projections._evict_up_to_v1(1, 0, now(), '1 day')",
    "_forget_offsets_v1": "SELECT projections._forget_offsets_v1(1, '{s1}')",
    "_all_offsets_v1": "SELECT projections._all_offsets_v1(1, 10)",
    "_evict_offsets_v1": "SELECT projections._evict_offsets_v1(1, '1 day', '')",
    "release_range_v1": "SELECT projections.release_range_v1(1, 0, 2, 'worker', 0, 0, NULL, NULL, now(), 0)",
    "_note_range_change_v1": "SELECT projections._note_range_change_v1(1, 'rescaled', 2, 1, NULL, NULL)",
    "_note_read_models_v1": "SELECT projections._note_read_models_v1(1, 1, '{t}', '{t}', '{SELECT}')",
    "_take_over_v1": "SELECT projections._take_over_v1('worker', '{1}', '{1}')",
    "leave_v1": "SELECT projections.leave_v1('worker')",
    "_set_offset_v1": "SELECT projections._set_offset_v1(1, now())",
    "_tell_of_endpoint_v1": "SELECT projections._tell_of_endpoint_v1('ep_1', 'acme', 'WebhookEndpointPaused', '{}')",
    "_create_endpoint_v1": "SELECT projections._create_endpoint_v1('ep_1', 'acme', "
    f'\'{{"url": "https://example.com", "policy": {POLICY}}}\', \'plain:whsec_\')',
    "_lock_endpoint_v1": "SELECT projections._lock_endpoint_v1('acme', 'ep_1', NULL)",
    "_change_endpoint_v1": "SELECT projections._change_endpoint_v1('acme', 'ep_1', '{\"rate_limit\": 5}')",
    "_rotate_secret_v1": "SELECT projections._rotate_secret_v1('acme', 'ep_1', 'plain:whsec_2', '1 day')",
    "_recall_answer_v1": "SELECT projections._recall_answer_v1('acme', 'k')",
    "_keep_answer_v1": "SELECT projections._keep_answer_v1('acme', 'k', 'plain:{}', '1 day', 10)",
    "_forget_answers_v1": "SELECT projections._forget_answers_v1()",
    "_fan_out_v1": "SELECT projections._fan_out_v1('{e1,e2}', array_fill(now() + interval '1 day', ARRAY[2]), "
    "'{acme,acme}', '{a,b}', '{k,k}', '{NULL,NULL}', '{t,t}', '{\"{}\",\"{}\"}', '{1,2}', '{1,2}', '{ep_1,ep_1}')",
    "_policy_within_limits_v1": f"SELECT projections._policy_within_limits_v1('{POLICY}')",
    "_refill_rate_limit_v1": "SELECT projections._refill_rate_limit_v1(2, 0, now(), now())",
    "_claim_deliveries_v1": "SELECT projections._claim_deliveries_v1(10, 'ep_0')",
    "_lock_deliveries_v1": "SELECT projections._lock_deliveries_v1('{1}')",
    "_follow_on_v1": "SELECT projections._follow_on_v1('{1}')",
    "_judge_endpoint_v1": "SELECT projections._judge_endpoint_v1('ep_1', '{retry,done,dead}', '1 minute', TRUE)",
    "_finish_deliveries_v1": "SELECT projections._finish_deliveries_v1("
    "(SELECT array_agg(delivery_id) FROM projections.webhook_deliveries), "
    "(SELECT array_agg(lease_token) FROM projections.webhook_deliveries), "
    "'{dead,retry}', '{NULL,1s}', '{NULL,NULL}', '{f,f}', '{500,500}', '{no,no}', '{1s,1s}')",
    "_expire_deliveries_v1": "SELECT projections._expire_deliveries_v1()",
    "_erase_sent_v1": "SELECT * FROM projections._erase_sent_v1('acme', ARRAY['019a0000-0000-7000-8000-000000000007'])",
    "_erase_restored_v1": "SELECT projections._erase_restored_v1('projections.events_default')",
    "_erase_messages_v1": "SELECT * FROM projections._erase_messages_v1('acme', '{e0}')",
    "_erase_many_messages_v1": "SELECT * FROM projections._erase_many_messages_v1('acme', 'none')",
    "_reap_deliveries_v1": "SELECT projections._reap_deliveries_v1()",
    "_set_credential_v1": "SELECT projections._set_credential_v1('acme', 'ep_1', 'oauth', '{}', 'plain:x')",
    "_set_endpoint_state_v1": "SELECT projections._set_endpoint_state_v1('acme', 'ep_1', 'active', NULL)",
    "_decide_delivery_v1": "SELECT projections._decide_delivery_v1('retry', 'acme', 'ep_1', 'e1')",
    "_decide_deliveries_v1": (
        "SELECT projections._decide_deliveries_v1('drop', 'acme', 'ep_1', '{dead}', '{a}', NULL, now())"
    ),
    "_endpoint_backlog_v1": "SELECT projections._endpoint_backlog_v1('acme')",
    "endpoint_stats_v1": "SELECT projections.endpoint_stats_v1('acme', '1 hour', 100, 10)",
    "_webhook_totals_v1": "SELECT projections._webhook_totals_v1()",
    "_forget_deliveries_v1": "SELECT projections._forget_deliveries_v1()",
    "_release_waiting_v1": "SELECT projections._release_waiting_v1()",
    "_check_room_v1": "SELECT projections._check_room_v1('endpoints', 'acme', 100)",
    "_check_schedule_endpoint_v1": "SELECT projections._check_schedule_endpoint_v1('acme', 'ep_1')",
    "_create_schedule_v1": "SELECT projections._create_schedule_v1('sch_1', 'acme', 'nightly', '@daily', 'UTC', "
    "'report', '1', 'ep_1', 'one', '2020-01-01Z')",
    "_lock_schedule_v1": "SELECT projections._lock_schedule_v1('acme', 'sch_1', NULL)",
    "_change_schedule_v1": "SELECT projections._change_schedule_v1('acme', 'sch_1', '{\"missed\": \"all\"}')",
    "_note_standstill_v1": "SELECT projections._note_standstill_v1('2020-01-01Z', '2020-01-02Z')",
    "_watch_schedules_v1": "SELECT projections._watch_schedules_v1()",
    "_claim_schedules_v1": "SELECT projections._claim_schedules_v1()",
    "_advance_schedules_v1": "SELECT projections._advance_schedules_v1('{sch_1}', '{2020-01-01Z}', ARRAY[now()], "
    "ARRAY[now()], '{NULL}', ARRAY[interval '0'])",
    "_next_schedule_v1": "SELECT projections._next_schedule_v1()",
    "_remove_schedule_v1": "SELECT projections._remove_schedule_v1('acme', 'sch_1')",
    "_remove_endpoint_v1": "SELECT projections._remove_endpoint_v1('acme', 'ep_1')",
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
SELECT projections._begin_rebuild_v1(n, 0, 1023, 1, now(), 0, 'code', m, '{0}', '{1023}',
    ARRAY['rebuilt.delays'::regclass::oid], '{false}', '{NULL}', '{NULL}', '{plane}')
FROM (VALUES (2, 'rename'), (3, 'replace')) AS v (n, m);
CREATE TABLE projections_rebuild_2._last (
    source_id text, slice smallint, seq_nr bigint, db_timestamp timestamptz, newest timestamptz
);
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
        if name == "_swap_rebuild_v1":
            connection.execute(VERIFIED)
        assert connection.execute(call.encode()).description is not None, name


def test_bodies_name_tables_with_their_schema() -> None:
    tables = (
        "rebuild_parts|rebuild_tables|rebuilds|sources|events|imports|projections|projection_ranges|workers|"
        "source_offsets|parked_sources|partitions"
    )
    unqualified = re.compile(rf"\b(?:FROM|JOIN|INTO|UPDATE|TABLE)\s+(?:{tables})\b(?!\.)")

    assert {name for name, text in FILES.items() if unqualified.search(text)} == set()
