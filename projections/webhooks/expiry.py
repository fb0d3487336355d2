"""How long messages are good for that do not say it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeAlias

from projections.interests import InvalidTopic, TopicMatcher, parse_topics
from projections.webhooks.errors import InvalidMessage

ExpiresAfter: TypeAlias = timedelta | Mapping[str, timedelta] | None
"""For all messages, or by topics and patterns of them, of which the first that matches counts; None: they do not
expire."""


class Expiry:
    """
    When a message expires, by its topic.

    Args:
        after: How long messages are good for, from when they were sent, or from when they may be delivered.

    Raises:
        InvalidValue: A time is not above zero, or a pattern is malformed.
    """

    def __init__(self, after: ExpiresAfter = None) -> None:
        by_topic = {"**": after} if isinstance(after, timedelta) else dict(after or {})
        self._by_topic = [(_matcher(topic), _checked(topic, time)) for topic, time in by_topic.items()]

    def of(self, topic: str, since: datetime) -> datetime | None:
        """When a message expires that was sent, or may be delivered, then; None: it does not."""
        return next((since + time for matcher, time in self._by_topic if matcher.matches(topic)), None)


def _matcher(topic: str) -> TopicMatcher:
    try:
        return parse_topics([topic])
    except InvalidTopic as error:
        raise InvalidMessage(str(error)) from None


def _checked(topic: str, time: timedelta) -> timedelta:
    if not timedelta(0) < time <= timedelta(days=3650):
        raise InvalidMessage(
            f"messages of {topic!r} can expire after up to 3,650 days, not after {time!r:.80}"
        )
    return time
