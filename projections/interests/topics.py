"""
Topics, and patterns that match them: the only meaning of `*` for subscriptions, publishing and webhooks.

A topic has 1 to 255 characters: segments with dots between, none of them empty. A pattern is a topic in which

- `*` stands for any characters without a dot: alone it is exactly one segment, `order*` is a segment that begins so;
- `**`, always alone between dots, stands for one or more segments.

| pattern | matches | does not match |
| --- | --- | --- |
| `user.created` | `user.created` | anything else |
| `**` | every topic | |
| `*` | `user` | `user.created` |
| `user.*` | `user.created` | `user`, `user.profile.updated` |
| `user.**` | `user.created`, `user.profile.updated` | `user` |
| `**.created` | `user.created`, `app.user.created` | `created` |
| `order.*.paid` | `order.card.paid` | `order.paid`, `order.card.eu.paid` |
| `Flight*` | `FlightLanded` | `Flight.Landed` |

Topics of webhooks are narrower, as `projections.webhooks.topics` says. Event types of the journal are topics to
subscriptions, and may be any names: those with an empty segment are matched by patterns, but cannot be asked for.

`projections._topic_patterns_v1` says the same in SQL, where subscriptions are matched; a test compares both.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from projections.interests.errors import InvalidTopic

LONGEST_TOPIC = 255
"""Characters that an event type may have."""

# Two stars that are not a whole segment.
_MISPLACED = re.compile(r"[^.]\*\*|\*\*[^.]")
# Stands for `**` where a pattern is matched itself: no topic has half of a surrogate pair.
_ANY_SEGMENTS = "\ud800"
_WITHIN = f"[^.{_ANY_SEGMENTS}]*"


@dataclass(frozen=True)
class TopicMatcher:
    """Tells which topics some patterns match; :func:`parse_topics` makes it."""

    patterns: tuple[str, ...]

    def matches(self, topic: str) -> bool:
        """Tell whether any pattern matches the topic. Never raises."""
        return self._all or topic in self._names or self._wildcards.fullmatch(topic) is not None

    def covers(self, pattern: str) -> bool:
        """Tell whether one of the patterns matches all that another pattern matches, where that is plain to see."""
        return self.matches(pattern.replace("**", _ANY_SEGMENTS))

    @cached_property
    def _all(self) -> bool:
        return "**" in self.patterns

    @cached_property
    def _names(self) -> frozenset[str]:
        return frozenset(pattern for pattern in self.patterns if "*" not in pattern)

    @cached_property
    def _wildcards(self) -> re.Pattern[str]:
        # An empty expression would match the empty topic: (?!) matches nothing.
        patterns = [pattern for pattern in self.patterns if "*" in pattern]
        return re.compile("|".join(map(_expression, patterns)) or "(?!)", re.DOTALL)


def parse_topics(patterns: Iterable[str]) -> TopicMatcher:
    """
    Check patterns of topics, of 1 to 255 characters each, and compile them; the module says what they match.

    Raises:
        InvalidTopic: One is as :func:`check_topic` refuses it, or has ``**`` as part of a segment.
    """
    return TopicMatcher(tuple(map(_checked, patterns)))


def check_topic(topic: str) -> None:
    """Check the name of a topic, or a pattern, as far as both are alike: InvalidTopic."""
    if not 1 <= len(topic) <= LONGEST_TOPIC:
        raise InvalidTopic(f"a topic has 1 to {LONGEST_TOPIC} characters, not {len(topic)}")
    if ".." in f".{topic}.":
        raise InvalidTopic(
            f"the topic {topic[:100]!r} has an empty segment: write names with one dot between them"
        )


def _checked(pattern: str) -> str:
    check_topic(pattern)
    if _MISPLACED.search(pattern):
        raise InvalidTopic(
            f"the topic {pattern[:100]!r} has ** as part of a segment: "
            "it stands for whole segments, and * for any characters within one"
        )
    return pattern


def _expression(pattern: str) -> str:
    """A regular expression whose time grows with the topic's length alone: what is found first is never undone."""
    first, *others = pattern.split("**")
    if not others:
        return _chunk(first, at_end=True)
    *inner, last = others
    found = "".join(f"(?>.*?{_chunk(chunk)})" for chunk in inner)
    return f"{_chunk(first)}{found}.*{_chunk(last, at_end=True)}"


def _chunk(text: str, *, at_end: bool = False) -> str:
    """What stands between two `**`: its segments are as many as those that it matches."""
    first, *others = map(re.escape, text.split("*"))
    if at_end and others:
        *others, last = others
        return f"{first}{_found(others)}{_WITHIN}{last}"
    return first + _found(others)


def _found(texts: list[str]) -> str:
    return "".join(f"(?>{_WITHIN}?{text})" for text in texts)
