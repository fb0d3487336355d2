"""
Matching: a projection for each entity type, which finds for every event the subscriptions that it is for.

It runs on slice ranges as any projection does, so it scales and survives as they do; what it writes commits with its
offsets, so each event is matched once. The work itself is done by the database, a batch of events at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple, TypeVar

from journal import (
    DatabaseError,
    EventEnvelope,
    MissingPrivilege,
    OwnedSession,
    entity_types,
    slice_ranges,
)
from journal.faults import Fault, fault_of, is_conflict
from projections.handlers import ExactlyOnce, Group, Kind, Projection
from projections.recovery import Recovery

__all__ = ["Matching"]

T = TypeVar("T")

log = logging.getLogger("projections")

_BATCH = 5000
_REMEMBERED = 10_000
"""Topics of an entity type whose subscriptions a range remembers."""
_ASKED = 500
"""Topics that are asked about in one statement, for which there is a limit of time."""
_DUE = 1000
_MEMORY = {"53000", "53200"}
_CANCELLED = "57014"
_MOST = 0.9
"""Of its time, after which a cancelled statement is taken to have used it up: clocks do not run alike."""
_LIMIT_EXCEEDED = "54000"
_FUNCTION = "projections_conditions."
"""Of conditions, where PostgreSQL says in which function something failed."""

_BEGUN = "SELECT p.name FROM projections.projections AS p WHERE p.name = ANY ($1::text[])"
_BEGIN = "SELECT projections.begin_matching_v1($1, $2)"
_STATE = "SELECT projections.subscriptions_state_v1()"
_INTERESTS = """
SELECT condition_id, topic, group_id, subscription_ids::text AS ids FROM projections.interests_v1($1, $2)
"""
_MATCH = "SELECT projections.match_log_v1($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"
_MATCH_DUE = "SELECT projections.match_due_v1($1)"
_TIMEOUT = "SELECT set_config('statement_timeout', $1, TRUE)"
_WANTED = "SELECT condition_id FROM projections.wanted_conditions_v1($1, $2)"
_READ = "SELECT count(e) FROM projections.matchable_events_v1($1, $2, $3) AS e"
_ASK = "SELECT projections.ask_alone_v1($1, $2, $3, $4, $5, $6)"
_DUE_EVENTS = """
SELECT source_id, seq_nr, db_timestamp, slice, topic FROM projections.directed_events
WHERE NOT matched AND not_before <= clock_timestamp() ORDER BY not_before LIMIT $1
"""
_QUARANTINE = "SELECT projections.quarantine_condition_v1($1, $2)"


class Matching:
    """
    Matches the events of all entity types with all subscriptions, also of types that come later.

    Give it to :func:`projections.run` as its discovery. Any number of processes may: they share the ranges.

    Args:
        ranges: Cut the slices of a type that has never been matched into so many ranges.
        condition_timeout: How long one condition may take for a batch of up to 5,000 events. One that takes longer, or
            fails, is set apart and reported; the others go on.

    Raises:
        ValueError: There can not be so many ranges, or the time is shorter than a millisecond.
    """

    def __init__(self, ranges: int = 1, condition_timeout: timedelta = timedelta(seconds=2)) -> None:
        if condition_timeout < timedelta(milliseconds=1):  # for PostgreSQL, 0 is no limit
            raise ValueError(f"condition_timeout must be 1 ms or longer, not {condition_timeout}")
        self._min_slices = [one.min_slice for one in slice_ranges(ranges)]
        self._timeout = condition_timeout
        self._projections: dict[str, Projection] = {}

    async def tend(self, session: OwnedSession) -> Sequence[Projection]:
        """Match published events whose time has come; returns the projections of all entity types."""
        types = await entity_types(session)
        begun = {row["name"] for row in await session.fetch(_BEGUN, [f"matching/{each}" for each in types])}
        for entity_type in types:
            if (
                f"matching/{entity_type}" not in begun
            ):  # or not any more, where the database went back in time
                await session.fetchval(_BEGIN, entity_type, self._min_slices)
            if entity_type not in self._projections:
                self._projections[entity_type] = _projection(entity_type, self._timeout)
        while await self._match_due(session, _DUE):
            pass
        return list(self._projections.values())

    async def _match_due(self, session: OwnedSession, limit: int) -> int:
        """Match what is due, up to a number, in a transaction; returns how many events that were."""
        rows = await session.fetch(_DUE_EVENTS, limit)
        if not rows:
            return 0
        events = _Events.of("published", [tuple(row.values()) for row in rows])
        await session.begin()
        try:
            match = partial(session.fetchval, _MATCH_DUE, limit)
            matched: int = await _Asking(session, events, self._timeout).run(match)
            await session.commit()
        except _TooMuch:
            await session.rollback()
            return await self._match_due(session, len(rows) // 2)
        except BaseException:
            await session.rollback()
            raise
        return matched


def _projection(entity_type: str, timeout: timedelta) -> Projection:
    return Projection(
        f"matching/{entity_type}", entity_type, 1, Kind.HEADS, {}, lambda: _Matcher(entity_type, timeout),
        ExactlyOnce(), Recovery.fail(), Group(), "ignore", _BATCH, (),
    )  # fmt: skip


class _Matcher:
    """Matches the batches of one range; a batch is a transaction, which stores the range's offsets too."""

    def __init__(self, entity_type: str, timeout: timedelta) -> None:
        self._entity_type = entity_type
        self._timeout = timeout
        self._interests = _Interests(entity_type)

    async def handle(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        """Match events, in their order."""
        try:
            await self._match(session, envelopes)
        except _TooMuch:
            half = len(envelopes) // 2
            await self.handle(session, envelopes[:half])
            await self.handle(session, envelopes[half:])

    async def _match(self, session: OwnedSession, envelopes: Sequence[EventEnvelope]) -> None:
        rows = [(e.source_id, e.seq_nr, e.db_timestamp, e.slice, e.event_type) for e in envelopes]
        events = _Events.of(self._entity_type, rows)

        async def match() -> None:
            interests = await self._interests.of(session, set(events.topics))
            await session.fetchval(_MATCH, *events, *interests)

        await _Asking(session, events, self._timeout).run(match)


_Interest = tuple[int | None, str | None, int, str]
"""A condition that looks at events, a topic, a group, and the array of its subscriptions, as text."""


class _Interests:
    """
    Remembers which subscriptions want which topics, until any subscription changes.

    It looks after the events at hand were read: what was committed before them is never missed. Those with a condition
    that name no topic are remembered as of None.
    """

    def __init__(self, entity_type: str) -> None:
        self._entity_type = entity_type
        self._state = ""
        self._known: dict[str | None, list[_Interest]] = {}

    async def of(self, session: OwnedSession, topics: set[str]) -> tuple[list[Any], ...]:
        """Conditions, topics, groups and arrays of subscriptions, side by side."""
        state: str = await session.fetchval(_STATE)
        if state != self._state or len(self._known) > _REMEMBERED:
            self._state, self._known = state, {}
        wanted: set[str | None] = {*topics, None}
        unknown = list(wanted - self._known.keys())
        for first in range(0, len(unknown), _ASKED):
            self._known |= await self._read(session, unknown[first : first + _ASKED])
        return _columns([interest for topic in wanted for interest in self._known[topic]], 4)

    async def _read(
        self, session: OwnedSession, topics: list[str | None]
    ) -> dict[str | None, list[_Interest]]:
        found: dict[str | None, list[_Interest]] = {topic: [] for topic in topics}
        for row in await session.fetch(_INTERESTS, self._entity_type, topics):
            found[row["topic"]].append((row["condition_id"], row["topic"], row["group_id"], row["ids"]))
        return found


def _columns(rows: Sequence[tuple[Any, ...]], width: int) -> tuple[list[Any], ...]:
    return tuple([row[n] for row in rows] for n in range(width))


class _Events(NamedTuple):
    """Events as columns, in the order of ``match_log_v1``."""

    entity_type: str
    source_ids: list[str]
    seq_nrs: list[int]
    timestamps: list[datetime]
    slices: list[int]
    topics: list[str]

    @classmethod
    def of(cls, entity_type: str, rows: Sequence[tuple[Any, ...]]) -> _Events:
        return cls(entity_type, *(list(column) for column in zip(*rows, strict=True)))


class _TooMuch(Exception):
    """The payloads of these events are more than PostgreSQL takes at once, 1 GB, or reads in time."""


class _Interrupted(DatabaseError):
    """Somebody has cancelled the statement before its time was over: no condition took too long."""


class _Asking:
    """
    Runs what asks conditions, in a transaction, so that none of them can spoil it or take for ever.

    All are asked in one statement. Where that fails, each is asked alone, and those that are at fault are set apart.
    The time that it takes to read the events is no condition's fault.
    """

    def __init__(self, session: OwnedSession, events: _Events, timeout: timedelta) -> None:
        self._session = session
        self._events = events
        self._timeout = timeout

    async def run(self, work: Callable[[], Awaitable[T]]) -> T:
        try:
            return await self._try(self._timeout, work)
        except DatabaseError as error:
            self._raise_unless_of_a_condition(error)
        reading = await self._time_to_read()
        if reading > self._timeout and len(self._events.topics) > 1:
            raise _TooMuch
        limit = self._timeout + 4 * reading  # a condition is given copies
        asked = await self._ask_each(limit)
        # What took too long together may do so again, and none of them be at fault.
        return await self._try((asked + 1) * limit, work)

    async def _try(self, limit: timedelta, work: Callable[[], Awaitable[T]]) -> T:
        began = time.monotonic()
        try:
            async with self._session.savepoint():
                await self._session.fetchval(_TIMEOUT, f"{limit // timedelta(milliseconds=1)}ms")
                result = await work()
                await self._session.fetchval(_TIMEOUT, "0")
                return result
        except DatabaseError as error:
            if error.sqlstate == _CANCELLED and time.monotonic() - began < _MOST * limit.total_seconds():
                raise _Interrupted(str(error), sqlstate=_CANCELLED) from error
            raise

    def _raise_unless_of_a_condition(self, error: DatabaseError) -> None:
        if _is_of_no_condition(error):
            raise error
        if error.sqlstate == _LIMIT_EXCEEDED and len(self._events.topics) > 1:
            raise _TooMuch from error

    async def _time_to_read(self) -> timedelta:
        e = self._events
        began = time.monotonic()
        await self._session.fetchval(_READ, e.source_ids, e.seq_nrs, e.timestamps)
        return timedelta(seconds=time.monotonic() - began)

    async def _ask_each(self, limit: timedelta) -> int:
        """Ask every condition alone, setting apart what fails; returns how many were asked."""
        e = self._events
        wanted = await self._session.fetch(_WANTED, e.entity_type, sorted(set(e.topics)))
        events = (e.entity_type, e.source_ids, e.seq_nrs, e.timestamps, e.topics)
        for condition_id in [row["condition_id"] for row in wanted]:
            try:
                await self._try(limit, partial(self._session.fetchval, _ASK, condition_id, *events))
            except DatabaseError as error:
                self._raise_unless_of_a_condition(error)
                await self._set_apart(condition_id, error)
        return len(wanted)

    async def _set_apart(self, condition_id: int, error: DatabaseError) -> None:
        await self._session.fetchval(_QUARANTINE, condition_id, str(error))
        log.error(
            "condition %d of subscriptions is asked no more: %s", condition_id, error,
            extra={"action": "condition_quarantined", "condition": condition_id},
        )  # fmt: skip


def _is_of_no_condition(error: DatabaseError) -> bool:
    """What a condition can not bring about: it may use up memory, take long, or be wrong by itself."""
    if isinstance(error, MissingPrivilege):
        return _FUNCTION not in error.context  # what a condition lacks is its own
    if isinstance(error, _Interrupted) or is_conflict(error):
        return True
    return fault_of(error) is Fault.DATABASE and error.sqlstate not in _MEMORY
