"""Patterns of topics against a reading of their rules that goes segment by segment."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from projections.webhooks.topics import parse_topics

names = st.lists(st.sampled_from(["a", "b", "aa", "a-b"]), min_size=1, max_size=4).map(".".join)
patterns = st.lists(st.sampled_from(["a", "b", "aa", "*"]), min_size=1, max_size=4).map(".".join)


def _matches(pattern: str, topic: str) -> bool:
    if pattern == "*":
        return True
    wanted, segments = pattern.split("."), topic.split(".")
    if pattern.endswith(".*") and len(segments) >= len(wanted):
        segments = segments[: len(wanted)]
    return len(wanted) == len(segments) and all(
        want in {"*", segment} for want, segment in zip(wanted, segments, strict=True)
    )


@given(st.lists(patterns, min_size=1, max_size=6), names)
def test_compiled_and_folded_patterns_match_what_each_pattern_matches(given: list[str], topic: str) -> None:
    assert parse_topics(given).matches(topic) == any(_matches(pattern, topic) for pattern in given)


@given(st.lists(patterns, min_size=1, max_size=6))
def test_folding_again_changes_nothing_and_keeps_at_least_one(given: list[str]) -> None:
    folded = parse_topics(given)

    assert parse_topics(folded.patterns) == folded


@given(st.lists(patterns, min_size=1, max_size=6), st.text())
def test_no_text_makes_matching_raise(given: list[str], topic: str) -> None:
    assert parse_topics(given).matches(topic) in {True, False}
