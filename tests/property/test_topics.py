"""Patterns of topics in Python and in SQL, against a reading of their rules that goes segment by segment."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.interests.errors import InvalidTopic
from projections.interests.topics import parse_topics
from tests.fixtures.examples import examples

segments = st.text(st.sampled_from("aab%_\\|^$(é\n"), max_size=4)
topics = st.lists(segments, min_size=1, max_size=5).map(".".join).filter(bool)
wild = st.sampled_from(["*", "**", "a*", "*a", "*a*", "a*b", "a*b*a"])
patterns = st.lists(segments.filter(bool) | wild, min_size=1, max_size=5).map(".".join).filter(bool)
stands_for = st.sampled_from(["", "a", "b", "a.b", "b.a.a"])


@st.composite
def asked(draw: st.DrawFn) -> tuple[list[str], str]:
    """Patterns, and a topic that is often one of them with something in the place of its wildcards."""
    wanted = draw(st.lists(patterns, min_size=1, max_size=4))
    filled = re.sub(r"[*]+", lambda _: draw(stands_for), draw(st.sampled_from(wanted)))
    return wanted, draw(st.just(filled or "a") | topics)


anything = st.text(st.sampled_from("a*."), max_size=8)

MATCHES = """
SELECT %(topic)s LIKE ANY (p.likes) AND (p.regexes IS NULL OR %(topic)s ~ ANY (p.regexes))
FROM projections._topic_patterns_v1(%(patterns)s) AS p
"""


def matches(pattern: str, topic: str) -> bool:
    wanted, found = tuple(pattern.split(".")), tuple(topic.split("."))

    @cache
    def rest(i: int, j: int) -> bool:
        if i == len(wanted):
            return j == len(found)
        if j == len(found):
            return False
        if wanted[i] == "**":
            return rest(i + 1, j + 1) or rest(i, j + 1)
        return _within(wanted[i], found[j]) and rest(i + 1, j + 1)

    return rest(0, 0)


def _within(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return _within(pattern[1:], text) or (bool(text) and _within(pattern, text[1:]))
    return text[:1] == pattern[0] and _within(pattern[1:], text[1:])


@settings(max_examples=examples(200))
@given(asked())
def test_compiled_patterns_match_what_each_pattern_matches(asks: tuple[list[str], str]) -> None:
    wanted, topic = asks
    assert parse_topics(wanted).matches(topic) == any(matches(pattern, topic) for pattern in wanted)


@given(patterns, patterns, topics)
def test_a_pattern_that_is_covered_matches_no_more(wide: str, narrow: str, topic: str) -> None:
    if parse_topics([wide]).covers(narrow) and matches(narrow, topic):
        assert matches(wide, topic)


@given(st.lists(patterns, min_size=1, max_size=4), st.text())
def test_no_text_makes_matching_raise(wanted: list[str], topic: str) -> None:
    assert parse_topics(wanted).matches(topic) in {True, False}


@pytest.mark.examples
def test_sql_matches_what_python_matches(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:

        @settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
        @given(asked())
        def run(asks: tuple[list[str], str]) -> None:
            wanted, topic = asks
            assert _in_sql(connection, wanted, topic) == parse_topics(wanted).matches(topic)

        run()


@pytest.mark.examples
def test_sql_refuses_what_python_refuses(dsn: str) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:

        @settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
        @given(anything)
        def run(pattern: str) -> None:
            assert _refusal(connection, pattern) == _refusal_of_python(pattern)

        run()


def _refusal_of_python(pattern: str) -> tuple[str | None, str | None] | None:
    try:
        parse_topics([pattern])
    except InvalidTopic as error:
        return "PJ081", str(error)
    return None


def _refusal(connection: psycopg.Connection[Any], pattern: str) -> tuple[str | None, str | None] | None:
    try:
        _in_sql(connection, [pattern], "a")
    except psycopg.Error as error:
        return error.sqlstate, error.diag.message_primary
    return None


def _in_sql(connection: psycopg.Connection[Any], wanted: list[str], topic: str) -> bool:
    row = connection.execute(MATCHES, {"topic": topic, "patterns": wanted}).fetchone()
    assert row is not None
    return bool(row[0])
