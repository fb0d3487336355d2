"""Topics of endpoints: what patterns match, and which are refused or folded."""

from __future__ import annotations

import pytest

from projections.webhooks.errors import InvalidEndpoint, InvalidMessage
from projections.webhooks.topics import check_topic, parse_topics


@pytest.mark.parametrize(
    ("pattern", "topic", "matches"),
    [
        ("user.created", "user.created", True),
        ("user.created", "user.created.late", False),
        ("user.created", "user_created", False),
        ("user.created", "userxcreated", False),
        ("user", "User", False),
        ("*", "user", True),
        ("*", "", True),
        ("*", "not a topic\n", True),
        ("user.*", "user.created", True),
        ("user.*", "user.profile.updated", True),
        ("user.*", "user", False),
        ("user.*", "user.", False),
        ("user.*", "users.created", False),
        ("*.created", "user.created", True),
        ("*.created", "app.user.created", False),
        ("*.created", "created", False),
        ("order.*.paid", "order.card.paid", True),
        ("order.*.paid", "order.paid", False),
        ("order.*.paid", "order.card.eu.paid", False),
        ("*.*", "a", False),
        ("*.*", "a.b", True),
        ("*.*", "a.b.c", True),
        ("a.*.*", "a.b", False),
        ("a.*.*", "a.b.c.d", True),
    ],
)
def test_a_star_is_one_segment_and_at_the_end_one_or_more(pattern: str, topic: str, matches: bool) -> None:
    assert parse_topics([pattern]).matches(topic) is matches


def test_any_of_several_patterns_matches() -> None:
    matcher = parse_topics(["user.created", "order.*", "*.deleted"])

    assert [
        t for t in ("user.created", "order.a.b", "x.deleted", "user.updated", "") if matcher.matches(t)
    ] == [
        "user.created",
        "order.a.b",
        "x.deleted",
    ]


@pytest.mark.parametrize(
    "pattern",
    ["", ".", "a.", ".a", "a..b", "us*", "**", "a.*b", "a b", "a\n", "é", "a/b", "a'--", "a" * 129, "*."],
)
def test_what_can_not_be_a_topic_is_refused_and_named(pattern: str) -> None:
    with pytest.raises(InvalidEndpoint) as refused:
        parse_topics(["fine", pattern])

    assert repr(pattern[:128]) in str(refused.value)


def test_the_longest_topic_and_the_most_are_accepted() -> None:
    topics = [f"{n:03d}{'a' * 125}" for n in range(100)]

    assert parse_topics(topics).patterns == tuple(topics)


@pytest.mark.parametrize("count", [0, 101])
def test_too_few_and_too_many_topics_are_refused(count: int) -> None:
    with pytest.raises(InvalidEndpoint, match=f"not {count}; for every topic write"):
        parse_topics([f"t{n}" for n in range(count)])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["a", "a"], ["a"]),
        (["a", "*", "b.*"], ["*"]),
        (["user.*", "user.created", "user.a.b", "user"], ["user.*", "user"]),
        (["a.b.*", "a.*"], ["a.*"]),
        (["a.*.c", "a.b.c", "a.*.*"], ["a.*.*"]),
        (["*.created", "user.created", "a.b.created"], ["*.created", "a.b.created"]),
        (["*.created", "user.*"], ["*.created", "user.*"]),
        (["*.*", "a", "a.b.c", "x.*"], ["*.*", "a"]),
    ],
)
def test_redundant_entries_are_folded(given: list[str], kept: list[str]) -> None:
    assert parse_topics(given).patterns == tuple(kept)


def test_unknown_topics_are_refused_where_topics_are_known() -> None:
    known = ["user.created", "order.card.paid"]

    assert parse_topics(["user.created", "order.*"], known).matches("order.card.paid")
    assert parse_topics(["*"], known).matches("user.created")
    with pytest.raises(InvalidEndpoint, match=r"'invoice.*'.*order.card.paid, user.created"):
        parse_topics(["user.created", "invoice.*"], known)


@pytest.mark.parametrize("topic", ["", "*", "a.*", "a b", "a" * 129, "a.", "a\n"])
def test_a_message_has_a_topic_without_wildcards(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="a topic is"):
        check_topic(topic)


def test_a_topic_of_a_message_is_returned() -> None:
    assert check_topic("user.profile-1.created_at") == "user.profile-1.created_at"


def test_a_single_topic_needs_no_list() -> None:
    assert parse_topics("user.*") == parse_topics(["user.*"])
