"""The events that a handler of a group gets."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic import BaseModel

from journal import EventEnvelope


class MatchedEvent(NamedTuple):
    """
    An event that matched.

    Attributes:
        match_id: Number of the match: grows in the order in which a group reads.
        subscription_ids: The group's subscriptions that it matched.
        envelope: The event.
        matched_at: When it matched; None for a batch that failed before such times were kept.
    """

    match_id: int
    subscription_ids: list[int]
    envelope: EventEnvelope
    matched_at: datetime | None = None

    @property
    def topic(self) -> str:
        """The event's type."""
        return self.envelope.event_type

    @property
    def event(self) -> BaseModel:
        """The payload as the model that is declared for its type, as :attr:`journal.EventEnvelope.event` has it."""
        return self.envelope.event

    @property
    def payload(self) -> Any:
        """The payload as plain Python values, in the newest version."""
        return self.envelope.payload


def describe(batch: Sequence[MatchedEvent]) -> str:
    """A batch, for messages."""
    return f"matches {batch[0].match_id} to {batch[-1].match_id}"
