"""What patterns of topics match, and which are refused."""

from __future__ import annotations

import re

import pytest

from projections.interests.errors import InvalidTopic
from projections.interests.topics import parse_topics


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("user.created", "user.created", True),
        ("user.created", "user.created.late", False),
        ("user.created", "user_created", False),
        ("user.created", "userxcreated", False),
        ("user", "User", False),
        ("**", "user", True),
        ("**", "", True),
        ("**", "not a topic\n", True),
        ("**", "user.created", True),
        ("*", "user", True),
        ("*", "user.created", False),
        ("user.**", "user.created", True),
        ("user.**", "user.profile.updated", True),
        ("user.**", "user", False),
        ("user.**", "users.created", False),
        ("user.*", "user.created", True),
        ("user.*", "user.", True),
        ("user.*", "user.profile.updated", False),
        ("user*", "user", True),
        ("user*", "users", True),
        ("user*", "user.created", False),
        ("*.created", "user.created", True),
        ("*.created", "app.user.created", False),
        ("*.created", "created", False),
        ("**.created", "app.user.created", True),
        ("**.created", "created", False),
        ("order.*.paid", "order.card.paid", True),
        ("order.*.paid", "order.paid", False),
        ("order.*.paid", "order.card.eu.paid", False),
        ("order.**.paid", "order.card.eu.paid", True),
        ("order.**.paid", "order.paid", False),
        ("*.**", "a", False),
        ("*.**", "a.b", True),
        ("*.**", "a.b.c", True),
        ("a.*.**", "a.b", False),
        ("a.*.**", "a.b.c.d", True),
        ("**.b.**.c", "a.b.b.x.c.c", True),
        ("**.b.**.c", "a.b.c", False),
        ("*b*.c", "abbb.c", True),
        ("*ab", "abab", True),
        ("a*a", "a", False),
        ("a.*", "a.*", True),
    ],
)
def test_a_star_is_characters_of_one_segment_and_two_are_segments(
    pattern: str, topic: str, matches: bool
) -> None:
    assert parse_topics([pattern]).matches(topic) is matches


def test_any_of_several_patterns_matches() -> None:
    matcher = parse_topics(["user.created", "order.**", "*.deleted"])

    assert [
        t for t in ("user.created", "order.a.b", "x.deleted", "user.updated", "") if matcher.matches(t)
    ] == [
        "user.created",
        "order.a.b",
        "x.deleted",
    ]


@pytest.mark.parametrize("pattern", ["***", "user**", "**user", "a.**b.c", "a***.b", "****"])
def test_two_stars_are_a_whole_segment(pattern: str) -> None:
    with pytest.raises(InvalidTopic, match="as part of a segment") as refused:
        parse_topics(["fine", pattern])

    assert repr(pattern) in str(refused.value)


@pytest.mark.parametrize("pattern", [".", "a..b", ".a", "a.", "**."])
def test_a_segment_is_not_empty(pattern: str) -> None:
    with pytest.raises(InvalidTopic, match=re.escape(f"the topic {pattern!r} has an empty segment")):
        parse_topics([pattern])


@pytest.mark.parametrize("pattern", ["", "a" * 256])
def test_what_no_topic_can_match_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidTopic, match=f"has 1 to 255 characters, not {len(pattern)}"):
        parse_topics([pattern])
