"""Topics of messages and endpoints: which are refused, folded or unknown."""

from __future__ import annotations

import time

import pytest

from projections.interests.topics import parse_topics
from projections.webhooks.errors import InvalidEndpoint, InvalidMessage
from projections.webhooks.topics import check_topic, endpoint_topics


@pytest.mark.parametrize(
    "pattern",
    ["", ".", "a.", ".a", "a..b", "us**", "***", "a.**b", "a b", "a\n", "é", "a/b", "a'--", "a" * 129, "*."],
)
def test_what_can_not_be_a_topic_is_refused_and_named(pattern: str) -> None:
    with pytest.raises(InvalidEndpoint) as refused:
        endpoint_topics(["fine", pattern])

    assert repr(pattern[:128]) in str(refused.value)


def test_the_longest_topic_and_the_most_are_accepted() -> None:
    topics = [f"{n:03d}{'a' * 125}" for n in range(100)]

    assert endpoint_topics(topics) == topics


@pytest.mark.parametrize("count", [0, 101])
def test_too_few_and_too_many_topics_are_refused(count: int) -> None:
    with pytest.raises(InvalidEndpoint, match=f"not {count}; for every topic write"):
        endpoint_topics([f"t{n}" for n in range(count)])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["a", "a"], ["a"]),
        (["a", "**", "b.*"], ["**"]),
        (["user.**", "user.created", "user.a.b", "user"], ["user.**", "user"]),
        (["user.*", "user.created", "user.a.b", "us*", "user"], ["user.*", "user.a.b", "us*"]),
        (["a.b.**", "a.**"], ["a.**"]),
        (["a.*.c", "a.b.c", "a.*.**"], ["a.*.**"]),
        (["*.created", "user.created", "a.b.created"], ["*.created", "a.b.created"]),
        (["*.created", "user.*"], ["*.created", "user.*"]),
        (["*.**", "a", "a.b.c", "x.**"], ["*.**", "a"]),
        (["**", "*", "a*", "a.**.b"], ["**"]),
    ],
)
def test_redundant_entries_are_folded(given: list[str], kept: list[str]) -> None:
    assert endpoint_topics(given) == kept
    assert endpoint_topics(kept) == kept


def test_unknown_topics_are_refused_where_topics_are_known() -> None:
    known = ["user.created", "order.card.paid"]

    assert endpoint_topics(["user.created", "order.**"], known) == ["user.created", "order.**"]
    assert endpoint_topics(["**"], known) == ["**"]
    with pytest.raises(InvalidEndpoint, match=r"'invoice.*'.*order.card.paid, user.created"):
        endpoint_topics(["user.created", "invoice.*"], known)


@pytest.mark.parametrize("topic", ["", "*", "a.*", "a b", "a" * 129, "a.", "a\n"])
def test_a_message_has_a_topic_without_wildcards(topic: str) -> None:
    with pytest.raises(InvalidMessage, match="a topic is"):
        check_topic(topic)


def test_a_topic_of_a_message_is_returned() -> None:
    assert check_topic("user.profile-1.created_at") == "user.profile-1.created_at"


def test_a_single_topic_needs_no_list() -> None:
    assert endpoint_topics("user.*") == ["user.*"]


def test_what_the_longest_patterns_and_topics_cost_together_is_little() -> None:
    """Of each the number of steps grows with its length: a thousandth of a second at most."""
    hostile = [
        "*" + "a" * 60 + "b*" + "a" * 60 + "c",
        "**." + "*a" * 61 + "b",
        "*.**." * 20 + "b",
        "*a" * 63 + "b",
    ]
    matcher = parse_topics(endpoint_topics(hostile))

    for topic in ("a" * 128, ".".join("a" * 64), "a" * 63 + "." + "a" * 64):
        began = time.process_time()
        assert not any(matcher.matches(topic) for _ in range(20))
        assert time.process_time() - began < 0.2
