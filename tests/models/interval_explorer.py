"""
The reader that looks twice (journal/interval_backtracking.py), explored breadth first over its own objects.

It relies on transactions that become visible in time: so a clock does not go on while one is as late as may be. On a
standby, commits are replayed in their order, as late as anybody likes, and time is what was replayed.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from journal import IntervalBacktracking, Poll, Position, ReadEvents, ReadKeys
from journal.backtracking import WritersPoll
from tests.models.breadth_first import Lost, explore

START, CLOCK = 4, 5
"""The stored horizon, and what the clock shows first."""
BEHIND, LATE_BY, EVERY = 1, 2, 1
"""How far the first reader stays behind, how late a commit may be, and how often the second one reads: instants."""
_DRAINED = LATE_BY + EVERY + 2 * BEHIND + 3
"""Instants after which all that is visible must have been read."""
_INSTANT = timedelta(microseconds=1)
_T0 = datetime(2030, 1, 1, tzinfo=UTC)
_BEGINS, _OPEN, _COMMITTED, _ROLLED_BACK = range(4)

Machine = Callable[[datetime], IntervalBacktracking]


def _time(number: int) -> datetime:
    return _T0 + number * _INSTANT


def _number(time: datetime) -> int:
    return (time - _T0) // _INSTANT


def machine(start: datetime) -> IntervalBacktracking:
    """The machine with the times of this exploration."""
    return IntervalBacktracking(
        start, behind=BEHIND * _INSTANT, late_by=LATE_BY * _INSTANT, every=EVERY * _INSTANT
    )


@dataclass(frozen=True, slots=True)
class World:
    """
    What the database holds.

    Args:
        clock: The time.
        writers: How far each transaction is.
        stamps: The time of each one's event, 0 before it has one.
        commits: Who has committed, each with its time, in their order.
        shown: How many of these are visible.
        handled: Which events are handled.
        crashes: How often the reader may still die.
        saved: The stored horizon.
    """

    clock: int
    writers: tuple[int, ...]
    stamps: tuple[int, ...]
    handled: tuple[bool, ...]
    commits: tuple[tuple[int, int], ...] = ()
    shown: int = 0
    crashes: int = 0
    saved: int = START

    def visible(self) -> list[Position]:
        """The events that can be seen, in the order of the log."""
        return sorted(Position(_time(self.stamps[w]), w, f"s{w}", 1) for _, w in self.commits[: self.shown])

    def is_too_late(self) -> bool:
        """Whether a transaction would be too late in an instant."""
        return any(
            at == _OPEN and stamp + LATE_BY <= self.clock
            for at, stamp in zip(self.writers, self.stamps, strict=True)
        )

    def is_over(self) -> bool:
        """Whether nothing more can become visible."""
        return min(self.writers) >= _COMMITTED and self.shown == len(self.commits)


State = tuple[World, IntervalBacktracking]


class IntervalExploration:
    """
    All that can happen at a scope.

    Args:
        writers: Transactions.
        ticks: How often the clock goes on.
        crashes: How often the reader dies.
        standby: Whether it reads a standby.
    """

    def __init__(self, writers: int, ticks: int, *, crashes: int = 0, standby: bool = False) -> None:
        self._ticks, self._standby = ticks, standby
        none = (0,) * writers
        self._first = World(CLOCK, none, none, (False,) * writers, crashes=crashes)

    def run(self) -> int:
        """
        Visit every state; returns how many there are.

        Raises:
            Lost: An invariant does not hold in one of them.
        """
        return explore((self._first, machine(_time(START))), self._next, _key)

    def _next(self, state: State) -> Iterator[State]:
        world, reader = state
        self._check_horizon(world, reader)
        if world.is_over() and isinstance(reader.next_step(), Poll):
            self._check_nothing_is_lost(world, reader)
        for then in self._others(world):
            yield then, reader
        yield self._step(world, reader)
        horizon = _number(reader.horizon)
        if world.crashes:
            if horizon != world.saved:
                yield replace(world, saved=horizon), reader
            yield replace(world, crashes=world.crashes - 1), machine(_time(world.saved))

    def _others(self, world: World) -> Iterator[World]:
        if world.clock < CLOCK + self._ticks and not world.is_too_late():
            yield replace(world, clock=world.clock + 1)
        for w, at in enumerate(world.writers):
            if at == _BEGINS:
                stamps = _with(world.stamps, w, world.clock)
                yield replace(world, writers=_with(world.writers, w, _OPEN), stamps=stamps)
            elif at == _OPEN:
                commits = (*world.commits, (world.clock, w))
                shown = world.shown if self._standby else len(commits)
                yield replace(
                    world, writers=_with(world.writers, w, _COMMITTED), commits=commits, shown=shown
                )
                stamps = _with(world.stamps, w, 0)
                yield replace(world, writers=_with(world.writers, w, _ROLLED_BACK), stamps=stamps)
        if world.shown < len(world.commits):
            yield replace(world, shown=world.shown + 1)

    def _step(self, world: World, reader: IntervalBacktracking) -> State:
        used = copy.copy(reader)
        match reader.next_step():
            case Poll():
                until = self._replayed_until(world)
                used.polled(WritersPoll(_time(world.clock), replayed_until=until, replayed=world.shown))
            case ReadKeys(after, until):
                last, world = self._read(world, after, until)
                used.keys_read(last, full=last is not None)
            case ReadEvents(after, until):
                last, world = self._read(world, after, until)
                used.events_read(last, full=last is not None)
        return world, used

    def _replayed_until(self, world: World) -> datetime | None:
        if not self._standby:
            return None
        return _time(world.commits[world.shown - 1][0] if world.shown else START)

    def _read(self, world: World, after: Position, until: datetime) -> tuple[Position | None, World]:
        """A page of one event."""
        page = [event for event in world.visible() if event > after and event.db_timestamp <= until][:1]
        if not page:
            return None, world
        handled = tuple(map(bool, _with(world.handled, page[0].slice, True)))
        return page[0], replace(world, handled=handled)

    def _check_horizon(self, world: World, reader: IntervalBacktracking) -> None:
        horizon = _number(reader.horizon)
        for w, stamp in enumerate(world.stamps):
            if stamp and stamp < horizon and not world.handled[w]:
                raise Lost(f"a horizon of {horizon} passes the event of writer {w}: {world}")

    def _check_nothing_is_lost(self, world: World, reader: IntervalBacktracking) -> None:
        """Time goes on, and nothing else happens."""
        last = world.clock + _DRAINED
        while world.clock < last or not isinstance(reader.next_step(), Poll):
            if isinstance(reader.next_step(), Poll):
                world = replace(world, clock=world.clock + 1)
            world, reader = self._step(world, reader)
        missed = [event for event in world.visible() if not world.handled[event.slice]]
        if missed:
            raise Lost(f"{missed} are lost in {world}")


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _key(state: State) -> object:
    world, reader = state
    return world, tuple(vars(reader).values())
