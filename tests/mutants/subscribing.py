"""Bugs of topics, streams and the places of readers of groups."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python, in_sql

_TOPICS = "tests/unit/test_topics.py"
_STARS = Pytest(f"{_TOPICS}::test_a_star_is_characters_of_one_segment_and_two_are_segments")
_RESUMING = "tests/integration/subscriptions/test_sse_resume.py"
_CLIENT = "projections/subscriptions/sse/stream.py: StreamClient"
_MATCHER = "projections/interests/topics.py"

in_python(
    "topics-match-their-beginning",
    "a pattern matches every topic that begins as it says",
    f"{_MATCHER}: TopicMatcher.matches",
    "self._wildcards.fullmatch(topic)",
    "self._wildcards.match(topic)",
    _STARS,
)
in_python(
    "one-pattern-of-several",
    "of several patterns the last one is not looked at",
    f"{_MATCHER}: TopicMatcher._wildcards",
    "map(_expression, patterns)",
    "map(_expression, patterns[:1])",
    Pytest(f"{_TOPICS}::test_any_of_several_patterns_matches"),
)
in_python(
    "topics-may-have-empty-segments",
    "a topic is subscribed to that no event has",
    f"{_MATCHER}: check_topic",
    'if ".." in f".{topic}."',
    'if ".." in topic',
    Pytest(f"{_TOPICS}::test_a_segment_is_not_empty"),
)
in_python(
    "two-stars-may-be-anywhere",
    "two stars within a segment are taken, and match something else than they say",
    f"{_MATCHER}: _checked",
    "if _MISPLACED.search(pattern):",
    "if _MISPLACED.match(pattern):",
    Pytest(f"{_TOPICS}::test_two_stars_are_a_whole_segment"),
)
in_python(
    "streams-are-resumed-with-any-id",
    "a client goes on with the id of another subscription, and misses events",
    f"{_CLIENT}._missed",
    "if last.subscribed != subscribed:",
    "if last.subscribed is None:",
    Pytest(f"{_RESUMING}::test_the_id_of_another_subscription_can_not_be_resumed"),
)
in_python(
    "streams-replay-without-a-limit",
    "a client that was away for long has all sent again that it has missed",
    f"{_CLIENT}.begin",
    "if missed is None or missed > limit:",
    "if missed is None:",
    Pytest(
        f"{_RESUMING}::test_a_client_that_missed_as_many_as_it_may_gets_them_and_one_more_can_not_be_resumed"
    ),
)
in_sql(
    "dropped-dead-letters-stay",
    "a dead letter that somebody drops stays, and can be handled all the same",
    "functions/subscriptions/drop_batches_v1.sql",
    "WHERE r.retry_id = ANY (_locked);",
    "WHERE r.retry_id = ANY (_locked) AND r.due_at IS NOT NULL;",
    Pytest(
        "tests/integration/subscriptions/test_consumer_retries.py::test_a_dead_letter_that_is_dropped_is_gone"
    ),
)
