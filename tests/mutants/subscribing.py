"""Bugs of topics, streams and the places of readers of groups."""

from __future__ import annotations

from tests.mutants.layers import Pytest
from tests.mutants.seeding import in_python

_TOPICS = "tests/unit/test_topics.py"
_STARS = Pytest(f"{_TOPICS}::test_a_star_is_characters_of_one_segment_and_two_are_segments")
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
