"""Bugs of subscriptions: matches, groups and their cursors."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_sql

_FOLDER = "tests/integration/subscriptions"

in_sql(
    "cursors-move-without-an-epoch",
    "who has lost a range moves its cursor all the same",
    "functions/subscriptions/move_cursor_v1.sql",
    "IF NOT FOUND OR _range.epoch IS DISTINCT FROM p_epoch THEN",
    "IF NOT FOUND THEN",
    Pytest(
        f"{_FOLDER}/test_consumer.py::test_a_cursor_is_not_moved_without_the_epoch_of_who_holds_the_range"
    ),
)
in_sql(
    "group-ranges-keep-the-epoch",
    "a range of a group that another reader takes keeps its epoch",
    "functions/subscriptions/poll_group_v1.sql",
    "SET owner = p_owner, epoch = r.epoch + 1",
    "SET owner = p_owner",
    Pytest(
        f"{_FOLDER}/test_consumer.py::test_a_cursor_is_not_moved_without_the_epoch_of_who_holds_the_range"
    ),
)
in_sql(
    "retries-have-no-lease",
    "a batch that is tried again is given to several",
    "functions/subscriptions/take_retries_v1.sql",
    "SET due_at = clock_timestamp() + p_lease",
    "SET due_at = r.due_at",
    Pytest(
        f"{_FOLDER}/test_consumer_retries.py::test_a_batch_that_was_taken_is_not_taken_by_another_until_its_lease_ends"
    ),
)
in_sql(
    "stars-match-dots",
    "* in a pattern of topics stands for dots, too",
    "functions/subscriptions/_topic_patterns_v1.sql",
    "'[^.]*', 'g'",
    "'.*', 'g'",
    Pytest("tests/property/test_topics.py::test_sql_matches_what_python_matches"),
)
in_sql(
    "params-match-whatever-the-topic",
    "a subscription that is found by its params gets events of topics that it has not named",
    "functions/subscriptions/_make_condition_v1.sql",
    "'s.topics @> ARRAY[projections_event.projections_topic] AND '",
    "'s.topics IS NOT NULL AND '",
    Pytest(
        f"{_FOLDER}/test_matching_types.py::test_a_condition_on_params_reads_their_index_whatever_topics_its_subscriptions_have"
    ),
)
in_sql(
    "params-are-looked-up-where-they-need-not-be-contained",
    "a condition that holds without what it says of params is asked by their index, and reads all subscriptions",
    "functions/subscriptions/_looks_up_params_v1.sql",
    "' :boolop and '",
    "' :boolop '",
    Pytest(
        f"{_FOLDER}/test_matching_types.py::test_the_index_of_params_is_read_where_it_answers_a_condition"
    ),
)
