"""
What decides about each event (offsets/deduplication.py, projections/running/acceptance.py), explored breadth first.

A page from any place, read by its events or by its keys first, whose transaction commits, is rolled back, or ends
nobody knows how. Offsets, and events, that go once everything before a time was handled. Parked sources. A new holder.
What is accepted is compared with a record of all that was handled, which the machine does not have. An event is
visible once those of its source before it are: the lock of the source's row sees to that.
"""

from __future__ import annotations

from collections.abc import Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from offsets import OffsetState
from projections.running.acceptance import Acceptance
from tests.models.breadth_first import Lost, explore

_T0 = datetime(2030, 1, 1, tzinfo=UTC)

Event = tuple[int, int]
"""A source and a number."""


class _Envelope(NamedTuple):
    source_id: str
    seq_nr: int
    db_timestamp: datetime


@dataclass(frozen=True, slots=True)
class World:
    """
    What the database holds, and what was handled.

    Args:
        events: How many each source gets, in turn, a second after one another.
        visible: Of each source, how many events can be seen.
        handled: Of each source, how many were handled, in their order.
        stored: Of each source, its offset, None where there is none or none any more.
        parked: Whether each source is set aside.
        evicted: Events before this place in the order of the log count as handled where their source has no offset.
        deleted: Events before this one are gone.
    """

    events: int
    visible: tuple[int, ...]
    handled: tuple[int, ...]
    stored: tuple[int | None, ...]
    parked: tuple[bool, ...]
    evicted: int = 0
    deleted: int = 0

    def place(self, source: int, number: int) -> int:
        """Where an event is in the order of the log."""
        return (number - 1) * len(self.handled) + source

    def shows(self, source: int, number: int) -> bool:
        """Whether an event can be read."""
        return number <= self.visible[source] and self.place(source, number) >= self.deleted

    def settled(self) -> int:
        """The place before which everything is handled, or parked and there to be seen."""
        due = (
            (source, (self.visible[source] if self.parked[source] else done) + 1)
            for source, done in enumerate(self.handled)
        )
        waits = [self.place(source, number) for source, number in due if number <= self.events]
        return min(waits, default=self.events * len(self.handled))


State = tuple[World, OffsetState]


class OffsetExploration:
    """
    All that can happen at a scope.

    Args:
        sources: Sources.
        events: Of each.
        cache: Of how many of them the machine remembers the offset, and a page has events.
    """

    def __init__(self, sources: int, events: int, *, cache: int) -> None:
        self._cache = cache
        none = (0,) * sources
        self._first = World(events, none, none, (None,) * sources, (False,) * sources)

    def run(self) -> int:
        """
        Visit every state; returns how many there are.

        Raises:
            Lost: An event is accepted that is not the next one of its source, or passed over though it is.
        """
        return explore((self._first, self._begins(self._first)), self._next, _key)

    def _begins(self, world: World) -> OffsetState:
        parked = {_name(source): 0 for source, is_parked in enumerate(world.parked) if is_parked}
        return OffsetState(self._cache, _at(world.evicted), parked)

    def _next(self, state: State) -> Iterator[State]:
        world, machine = state
        yield from ((then, machine) for then in self._others(world))
        yield world, self._begins(world)
        for page in self._pages(world):
            for keys_first in (False, True):
                yield from self._batch(world, machine, page, keys_first=keys_first)
        yield from self._parks(world, machine)

    def _others(self, world: World) -> Iterator[World]:
        for source, shown in enumerate(world.visible):
            if shown < world.events:
                yield replace(world, visible=_with(world.visible, source, shown + 1))
        settled = world.settled()
        if settled > world.evicted:
            yield replace(world, evicted=settled, stored=tuple(self._kept(world, settled)))
        if world.evicted > world.deleted and not any(world.parked):
            yield replace(world, deleted=world.evicted)

    def _kept(self, world: World, bound: int) -> Iterator[int | None]:
        """As _evict_offsets_v1 does it: those of parked sources stay."""
        for source, number in enumerate(world.stored):
            goes = number is not None and world.place(source, number) < bound and not world.parked[source]
            yield None if goes else number

    def _pages(self, world: World) -> Iterator[Sequence[Event]]:
        sources = range(len(world.handled))
        shown = [(s, n) for n in range(1, world.events + 1) for s in sources if world.shows(s, n)]
        for first in range(len(shown)):
            for page in (shown[first : first + 1], shown[first : first + 3]):
                if len({source for source, _ in page}) <= self._cache:
                    yield page

    def _batch(
        self, world: World, machine: OffsetState, page: Sequence[Event], *, keys_first: bool
    ) -> Iterator[State]:
        used = _copied(machine)
        accepted = self._accepted(world, used, page, keys_first=keys_first)
        expected = self._expected(world, page)
        if accepted != expected:
            raise Lost(f"{accepted} are accepted of {page}, not {expected}, in {world}")
        yield world, used  # it is rolled back
        if not accepted:
            return
        last = dict(accepted)
        handled = tuple(last.get(source, done) for source, done in enumerate(world.handled))
        stored = tuple(last.get(source, number) for source, number in enumerate(world.stored))
        then = replace(world, handled=handled, stored=stored)
        told, unknown = _copied(used), _copied(used)
        told.committed({_name(source): number for source, number in last.items()})
        yield then, told
        unknown.forget(map(_name, last))
        yield then, unknown
        yield world, unknown

    def _parks(self, world: World, machine: OffsetState) -> Iterator[State]:
        for source, is_parked in enumerate(world.parked):
            then, name = replace(world, parked=_with(world.parked, source, not is_parked)), _name(source)
            used = _copied(machine)
            if not is_parked and world.shows(source, world.handled[source] + 1):
                used.parked[name] = world.handled[source] + 1
                yield then, used
            elif is_parked:  # all that waits is handled, then it goes on
                done = max(world.handled[source], *self._runs(world, source))
                then = replace(
                    then,
                    handled=_with(world.handled, source, done),
                    stored=_with(world.stored, source, done or None),
                )
                if done:
                    used.committed({name: done})
                used.parked.pop(name, None)
                yield then, used

    def _runs(self, world: World, source: int) -> Iterator[int]:
        """The numbers from the next one on that can be seen, up to the first that cannot."""
        number = world.handled[source]
        yield number
        while world.shows(source, number + 1):
            number += 1
            yield number

    def _expected(self, world: World, page: Sequence[Event]) -> list[Event]:
        """What the record of all that was handled says."""
        handled, accepted = list(world.handled), list[Event]()
        for source, number in page:
            due = range(handled[source] + 1, number + 1)
            if world.parked[source] or not all(world.shows(source, one) for one in due):
                continue
            accepted += [(source, one) for one in due]
            handled[source] = max(handled[source], number)
        return accepted

    def _accepted(
        self, world: World, machine: OffsetState, page: Sequence[Event], *, keys_first: bool
    ) -> list[Event]:
        """What the code says."""
        database = _Database(world, machine)
        acceptance = Acceptance("p", cast("Any", database), database.reading, cast("Any", database))
        envelopes = [cast("Any", database.envelope(source, number)) for source, number in page]
        session: Any = None
        if keys_first:
            envelopes = _ran(acceptance.unhandled(session, envelopes))
        found = _ran(acceptance.accept(session, envelopes))
        return [(int(envelope.source_id), envelope.seq_nr) for envelope in found]


class _Database:
    """What :class:`Acceptance` asks of the database: offsets, and events of a source."""

    def __init__(self, world: World, state: OffsetState) -> None:
        self._world, self.state = world, state

    @staticmethod
    @asynccontextmanager
    async def reading(session: Any) -> Any:
        yield session

    def envelope(self, source: int, number: int) -> _Envelope:
        return _Envelope(_name(source), number, _at(self._world.place(source, number)))

    async def look_up(self, session: Any, source_ids: set[str]) -> None:
        """As Transactions.look_up does it."""
        stored = {_name(s): number for s, number in enumerate(self._world.stored) if number is not None}
        if unknown := self.state.unknown(sorted(source_ids)):
            self.state.loaded(unknown, stored)
            if not stored.keys() >= set(unknown):
                self.state.evicted_before = _at(self._world.evicted)

    async def predecessors(
        self, session: Any, keys: Sequence[tuple[str, int]], since: datetime, until: datetime
    ) -> Mapping[tuple[str, int], datetime]:
        before = {(name, number): self.envelope(int(name), number - 1) for name, number in keys}
        return {
            key: event.db_timestamp
            for key, event in before.items()
            if self._world.shows(int(key[0]), event.seq_nr) and since <= event.db_timestamp <= until
        }

    async def missing(
        self, session: Any, source_id: str, first: int, last: int, *, since: datetime
    ) -> list[_Envelope]:
        numbers = [n for n in range(first, last + 1) if self._world.shows(int(source_id), n)]
        events = [self.envelope(int(source_id), number) for number in numbers]
        return [event for event in events if event.db_timestamp >= since]


def _ran(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of what never waits."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise RuntimeError("it waits for something")


def _name(source: int) -> str:
    return str(source)


def _at(place: int) -> datetime:
    return _T0 + timedelta(seconds=place)


def _with(values: tuple[Any, ...], place: int, value: Any) -> tuple[Any, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _remembered(machine: OffsetState) -> dict[str, int]:
    """What is in its cache, in the order in which it would be given up."""
    return dict(machine._known)


def _copied(machine: OffsetState) -> OffsetState:
    copy = OffsetState(machine.size, machine.evicted_before, machine.parked)
    copy.committed(_remembered(machine))
    return copy


def _key(state: State) -> object:
    world, machine = state
    parked = frozenset(machine.parked.items())
    return world, tuple(_remembered(machine).items()), machine.evicted_before, parked
