"""Events: what a writer gives, and what an append answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, NamedTuple
from uuid import UUID

from journal.tokens import AwaitedEvent, last_of_each, write_token

BEGINNING = datetime(1970, 1, 1, tzinfo=UTC)
"""Before every event: where a reader of everything starts."""

LIBRARY_TYPES = frozenset({"published", "webhook-endpoint", "webhook-message"})
"""Entity types of events that the library itself appends. A journal may be without them for any time."""


class Position(NamedTuple):
    """A place in the order in which slices are read; a source's events are in ``seq_nr`` order in it."""

    db_timestamp: datetime
    slice: int
    source_id: str
    seq_nr: int

    @classmethod
    def before(cls, timestamp: datetime) -> Position:
        """The place before all events of a time."""
        return cls(timestamp, -1, "", 0)


class Origin(Enum):
    """How a reader came to an event."""

    QUERY = "query"
    BACKTRACKING = "backtracking"
    """Found behind the position: it was committed after later ones had been read."""
    GAP = "gap"
    """Loaded by its source because a later event of that source was seen first."""


@dataclass(frozen=True, slots=True)
class Event:
    """
    A fact to append.

    Args:
        source_id: The stream it belongs to, 1 to 255 characters, unique over all entity types.
        payload: A pydantic model, or anything that pydantic can turn into JSON; :class:`RawJson` keeps text
            as it is.
        entity_type: The kind of the source; a projection reads one, several or all.
        event_type: Name of the event; by default the one registered for the payload's class.
        version: Version of the payload; by default the one registered for the payload's class.
        tags: Labels that are stored and returned alongside the event.
        metadata: Anything about the event that is not part of it: who, from where, why.
        event_id: Makes the append idempotent: appending the same id again returns the first result.
            By default the database makes a UUIDv7.
    """

    source_id: str
    payload: Any
    entity_type: str
    event_type: str | None = None
    version: int | None = None
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    event_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoricEvent(Event):
    """
    An event that has its place already: what :func:`journal.import_events` loads.

    Args:
        seq_nr: Its number in its source: 1 for the first, then without gaps.
        db_timestamp: When it happened: aware, after 1970, not in the future, later than the one before it.
    """

    seq_nr: int
    db_timestamp: datetime


class RawJson(str):
    """JSON text that is stored byte by byte as it was written: key order, spaces, number text."""

    __slots__ = ()


class Unreadable(str):
    """
    Why a stored payload could not be made into JSON, in the place of its JSON.

    So an event that nobody decodes can be passed over, and one that somebody does fails alone.
    """

    __slots__ = ()


class Appended(NamedTuple):
    """Where an event was stored."""

    source_id: str
    seq_nr: int
    db_timestamp: datetime
    event_id: UUID
    timeline: int = 0
    """Which of the lives of the database it was stored in: a fail-over or a restore begins another."""

    @property
    def token(self) -> str:
        """A short, URL-safe text, from which another request or process can wait until this event is handled."""
        return write_token(self.awaited)

    @property
    def awaited(self) -> list[AwaitedEvent]:
        """What is to be waited for."""
        return [AwaitedEvent(self.source_id, self.seq_nr, self.db_timestamp, self.timeline)]


class AppendedEvents(list[Appended]):
    """
    Where the events of an append were stored, in their order.

    Args:
        stored: One for each event.
        are_new: For each, false where an event with its ``event_id`` was stored already.
    """

    def __init__(self, stored: Iterable[Appended] = (), are_new: Iterable[bool] = ()) -> None:
        super().__init__(stored)
        self.are_new = list(are_new)

    @property
    def token(self) -> str:
        """
        A short, URL-safe text, from which another request or process can wait until all of them are handled.

        Raises:
            ValueError: They are of too many sources: it would have more than 6,000 characters.
        """
        return write_token(self.awaited)

    @property
    def awaited(self) -> list[AwaitedEvent]:
        """What is to be waited for: the last event of each source."""
        return last_of_each(event for appended in self for event in appended.awaited)


def uuid7(milliseconds: int, random: int) -> UUID:
    """A UUID of version 7 with 74 bits of a number: it begins with a time, so that it is looked for where it can be."""
    return UUID(
        int=milliseconds << 80 | 7 << 76 | (random >> 62 & 0xFFF) << 64 | 2 << 62 | random & (1 << 62) - 1
    )
