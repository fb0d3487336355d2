"""
Topics that an endpoint wants: exact names, and patterns in which `*` stands for a segment.

| pattern | matches | does not match |
| --- | --- | --- |
| `user.created` | `user.created` | anything else |
| `*` | every topic | |
| `user.*` | `user.created`, `user.profile.updated` | `user` |
| `*.created` | `user.created` | `app.user.created` |
| `order.*.paid` | `order.card.paid` | `order.paid`, `order.card.eu.paid` |

A `*` is a whole segment. It stands for one segment, at the end of a pattern for one or more: `user.*` is read by
everybody as "all about users". (In Outpost a `*` stands for any characters, dots too: at the end that is the same, at
the start and inside it is more.)
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property

from projections.webhooks.errors import InvalidEndpoint, InvalidMessage

CHALLENGE = "webhook.verification"
"""The topic of the request by which a URL shows that it wants webhooks."""

LONGEST_TOPIC = 128
MOST_TOPICS = 100

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PATTERN = re.compile(r"(?:\*|[A-Za-z0-9_-]+)(?:\.(?:\*|[A-Za-z0-9_-]+))*")


@dataclass(frozen=True)
class TopicMatcher:
    """
    Tells which topics an endpoint wants; see `parse_topics`.

    Args:
        patterns: Valid ones, of which none covers another.
    """

    patterns: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        """Tell whether any pattern matches the topic. Never raises."""
        return self._all or topic in self._names or self._wildcards.fullmatch(topic) is not None

    @cached_property
    def _all(self) -> bool:
        return "*" in self.patterns

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(pattern for pattern in self.patterns if "*" not in pattern)

    @cached_property
    def _wildcards(self) -> re.Pattern[str]:
        # Every alternative is decided segment by segment, so that no topic makes it go back more than once. An empty
        # expression would match the empty topic: (?!) matches nothing.
        patterns = [pattern for pattern in self.patterns if "*" in pattern]
        return re.compile("|".join(map(_expression, patterns)) or "(?!)", re.DOTALL)


def parse_topics(patterns: Iterable[str], known: Collection[str] | None = None) -> TopicMatcher:
    """
    Check the topics of an endpoint, and drop those that another one covers.

    Args:
        patterns: 1 to 100 of up to 128 characters each, or a single one; see the module for what they match.
        known: Topics that there are, if that is decided: a name must be one of them, a pattern match one.

    Raises:
        InvalidEndpoint: A pattern can not be, or there are none or too many.
    """
    unique = list(dict.fromkeys([patterns] if isinstance(patterns, str) else patterns))
    if not 1 <= len(unique) <= MOST_TOPICS:
        raise InvalidEndpoint(
            f"an endpoint has 1 to {MOST_TOPICS} topics, not {len(unique)}; for every topic write '*'"
        )
    for pattern in unique:
        _check_pattern(pattern)
        if known is not None:
            _check_known(pattern, known)
    return TopicMatcher(tuple(_folded(unique)))


def check_topic(topic: str) -> str:
    """
    Return the topic of a message, if it can be one.

    Args:
        topic: Segments of ASCII letters, digits, `_` and `-`, with dots between, up to 128 characters.

    Raises:
        InvalidMessage: It is something else.
    """
    if len(topic) > LONGEST_TOPIC or not _TOPIC.fullmatch(topic):
        raise InvalidMessage(
            f"a topic is segments of letters, digits, '_' and '-' with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {topic[:LONGEST_TOPIC]!r}"
        )
    return topic


def _check_pattern(pattern: str) -> None:
    if len(pattern) > LONGEST_TOPIC or not _PATTERN.fullmatch(pattern):
        raise InvalidEndpoint(
            f"a topic is segments of letters, digits, '_' and '-', or '*' for a whole segment, with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {pattern[:LONGEST_TOPIC]!r}"
        )


def _check_known(pattern: str, known: Collection[str]) -> None:
    if pattern != "*" and not any(map(TopicMatcher((pattern,)).matches, known)):
        raise InvalidEndpoint(f"there is no topic {pattern!r}; topics are: {', '.join(sorted(known))}")


def _expression(pattern: str) -> str:
    segments = [r"[^.]+" if segment == "*" else re.escape(segment) for segment in pattern.split(".")]
    if pattern.endswith(".*"):
        segments[-1] = r"[^.].*"
    return r"\.".join(segments)


def _folded(patterns: list[str]) -> list[str]:
    return [
        pattern
        for pattern in patterns
        if not any(_covers(other, pattern) for other in patterns if other != pattern)
    ]


def _covers(wide: str, narrow: str) -> bool:
    """Tell whether `wide` matches all that `narrow` matches. Two different patterns never cover each other."""
    if wide == "*" or narrow == "*":
        return wide == "*"
    wides, narrows = wide.split("."), narrow.split(".")
    if wide.endswith(".*"):
        if len(narrows) < len(wides):
            return False
        wides.pop()
    elif narrow.endswith(".*") or len(wides) != len(narrows):
        return False
    return all(one in {"*", other} for one, other in zip(wides, narrows, strict=False))
