"""What a handler of a group gets."""

from __future__ import annotations

from typing import Any, NamedTuple

from journal import EventEnvelope


class MatchedEvent(NamedTuple):
    """
    An event that matched.

    Args:
        match_id: Number of the match: grows in the order in which a group reads.
        subscription_ids: The group's subscriptions that it matched.
        envelope: The event.
    """

    match_id: int
    subscription_ids: list[int]
    envelope: EventEnvelope

    @property
    def topic(self) -> str:
        """The event's type."""
        return self.envelope.event_type

    @property
    def payload(self) -> Any:
        """The payload as plain Python values."""
        return self.envelope.payload
