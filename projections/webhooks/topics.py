"""
Topics of messages, and those that an endpoint wants: `projections.interests.topics` says what its patterns match.

They are narrower than topics of subscriptions: ASCII letters, digits, `_` and `-`, and at most 128 characters.
Receivers of other companies compare them, and put them into addresses, headers and file names of their own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from projections.interests import InvalidTopic, TopicMatcher, parse_topics
from projections.webhooks.errors import InvalidEndpoint, InvalidMessage

CHALLENGE = "webhook.verification"
"""The topic of the request by which a URL shows that it wants webhooks."""

LONGEST_TOPIC = 128
MOST_TOPICS = 100

_TOPIC = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_PATTERN = re.compile(r"[A-Za-z0-9_*-]+(?:\.[A-Za-z0-9_*-]+)*")


def endpoint_topics(patterns: Iterable[str], known: Collection[str] | None = None) -> list[str]:
    """
    Check the topics of an endpoint, 1 to 100 patterns of up to 128 characters, and drop those that others cover.

    If the existing topics are known, a name must be one of them, and a pattern match one; else InvalidValue.
    """
    unique = list(dict.fromkeys([patterns] if isinstance(patterns, str) else patterns))
    if not 1 <= len(unique) <= MOST_TOPICS:
        raise InvalidEndpoint(
            f"an endpoint has 1 to {MOST_TOPICS} topics, not {len(unique)}; for every topic write '**'"
        )
    matchers = {pattern: _matcher(pattern) for pattern in unique}
    for pattern, matcher in matchers.items():
        if known is not None and pattern != "**" and not any(map(matcher.matches, known)):
            raise InvalidEndpoint(f"there is no topic {pattern!r}; topics are: {', '.join(sorted(known))}")
    return [
        pattern
        for pattern in unique
        if not any(matcher.covers(pattern) for other, matcher in matchers.items() if other != pattern)
    ]


def check_topic(topic: str) -> str:
    """Return the topic of a message: segments of ASCII letters, digits, `_` and `-`, with dots, to 128 characters."""
    if len(topic) > LONGEST_TOPIC or not _TOPIC.fullmatch(topic):
        raise InvalidMessage(
            f"a topic is segments of letters, digits, '_' and '-' with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {topic[:LONGEST_TOPIC]!r}"
        )
    return topic


def _matcher(pattern: str) -> TopicMatcher:
    if len(pattern) > LONGEST_TOPIC or not _PATTERN.fullmatch(pattern):
        raise InvalidEndpoint(
            f"a topic is segments of letters, digits, '_', '-' and '*' with dots between, "
            f"up to {LONGEST_TOPIC} characters, not {pattern[:LONGEST_TOPIC]!r}"
        )
    try:
        return parse_topics([pattern])
    except InvalidTopic as error:
        raise InvalidEndpoint(str(error)) from None
