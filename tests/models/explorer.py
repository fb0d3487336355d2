"""
The reader's state machine itself, explored breadth first over its own objects at the scope of the model of it.

What the machine can come to be is compared with what the model can: when one of them is changed alone, they differ.
"""

from __future__ import annotations

import copy
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from journal import Poll, Position, ReadEvents, ReadKeys, WriterLockBacktracking
from journal.backtracking import WritersPoll
from journal.polling import Look
from tests.models.breadth_first import Lost

START, CLOCK, NONE = 4, 5, 255
"""As in reader.pml: the stored horizon, what the clock shows first, and no bound."""
_INSTANT = timedelta(microseconds=1)
_T0 = datetime(2030, 1, 1, tzinfo=UTC)
_NEW_NAME = 2
_LOCKS, _STAMPS, _DECIDES, _UNLOCKS, _ENDED, _ROLLED_BACK = range(6)

Observed = tuple[int, ...]
"""What can be seen of a machine: its times, position, window and flags, then the bound of each holder."""


def _time(number: int) -> datetime:
    return _T0 + number * _INSTANT


def _number(time: datetime) -> int:
    return (time - _T0) // _INSTANT


def _key(position: Position) -> tuple[int, int]:
    return _number(position.db_timestamp), position.slice + 1


@dataclass(frozen=True, slots=True)
class World:
    """
    What the database holds, and how far the reader's poll is.

    Args:
        clock: The time.
        writers: How far each transaction is.
        stamps: The time of each one's event, 0 before it has one.
        handled: Which events are handled.
        prepared: Which transactions are prepared: 1 while they have both names, 2 when only the new one.
        asked: The time of a poll that is under way, and the newest event that it saw.
        holders: Who the poll saw; None before it looked.
        looks: Polls since all is there and read.
        crashes: How often the reader may still die.
        saved: The stored horizon.
    """

    clock: int
    writers: tuple[int, ...]
    stamps: tuple[int, ...]
    handled: tuple[bool, ...]
    prepared: tuple[int, ...]
    asked: tuple[int, int | None] | None = None
    holders: frozenset[str] | None = None
    looks: int = 0
    crashes: int = 0
    saved: int = START

    def visible(self) -> list[Position]:
        """The events that can be seen, in the order of the log."""
        shown = [w for w, at in enumerate(self.writers) if at in {_UNLOCKS, _ENDED}]
        return sorted(Position(_time(self.stamps[w]), w, f"s{w}", 1) for w in shown)

    def names(self) -> frozenset[str]:
        """Who holds the lock."""
        holding = [w for w, at in enumerate(self.writers) if at in {_STAMPS, _DECIDES, _UNLOCKS}]
        old = {str(w) for w in holding if self.prepared[w] < _NEW_NAME}
        return frozenset(old | {f"p{w}" for w in holding if self.prepared[w]})

    def all_ended(self) -> bool:
        return min(self.writers) >= _ENDED


State = tuple[World, WriterLockBacktracking]


def _with(values: tuple[int, ...], place: int, value: int) -> tuple[int, ...]:
    return (*values[:place], value, *values[place + 1 :])


def observed(machine: WriterLockBacktracking, writers: int) -> Observed:
    """What can be seen of a machine."""
    window = machine._window
    left = (0, 0, 0) if window is None else (*_key(window.after), _number(window.until))
    names = [*map(str, range(writers)), *(f"p{w}" for w in range(writers))]
    bounds = [_number(machine._bounds[name]) if name in machine._bounds else NONE for name in names]
    return (
        _number(machine._polled_at), *_key(machine.position), machine._forward, machine._at_end, *left,
        _number(machine.horizon), *bounds,
    )  # fmt: skip


class Exploration:
    """
    All that can happen at a scope; see reader.pml for what the sizes mean.

    Args:
        writers: Transactions.
        ticks: How often the clock goes on.
        crashes: How often the reader dies.
        prepared: How many transactions may be prepared.
        machine: The class of the machine.
    """

    def __init__(
        self,
        writers: int,
        ticks: int,
        *,
        crashes: int = 0,
        prepared: int = 0,
        machine: type[WriterLockBacktracking] = WriterLockBacktracking,
    ) -> None:
        self._ticks, self._prepared, self._machine = ticks, prepared, machine
        none = (0,) * writers
        self._first = World(CLOCK, none, none, (False,) * writers, (False,) * writers, crashes=crashes)
        self.states = 0
        self.observed: set[Observed] = set()

    def run(self) -> None:
        """
        Visit every state.

        Raises:
            Lost: An invariant does not hold in one of them.
        """
        writers = len(self._first.writers)
        todo: deque[State] = deque([(self._first, self._begin(START))])
        seen = set()
        while todo:
            world, machine = todo.popleft()
            for then, after, stepped in self._next(world, machine):
                if stepped:
                    self.observed.add(observed(after, writers))
                    self._check_horizon(then, after)
                poll = after._poll and (after._poll.polled_at, after._poll.holders)
                key = (then, observed(after, writers), after._start, poll)
                if key not in seen:
                    seen.add(key)
                    todo.append((then, after))
        self.states = len(seen)

    def _begin(self, horizon: int) -> WriterLockBacktracking:
        return self._machine(_time(horizon), margin=_INSTANT)

    def _next(
        self, world: World, machine: WriterLockBacktracking
    ) -> Iterator[tuple[World, WriterLockBacktracking, bool]]:
        """What may happen, each with the machine that follows, and whether that has taken a step."""
        for then in self._others(world):
            yield then, machine, False
        match machine.next_step():
            case Poll() if world.asked is None and world.looks == 2:
                missed = [event for event in world.visible() if not world.handled[event.slice]]
                if missed:
                    raise Lost(f"{missed} are lost in {world}")
            case Poll():
                yield from self._poll(world, machine)
            case ReadKeys(after, until):
                yield self._read(world, machine, after, until, keys=True)
            case ReadEvents(after, until):
                yield self._read(world, machine, after, until, keys=False)
        horizon = _number(machine.horizon)
        if world.crashes and world.asked is None:
            if horizon != world.saved:
                yield replace(world, saved=horizon), machine, False
            yield replace(world, crashes=world.crashes - 1, looks=0), self._begin(world.saved), False

    def _others(self, world: World) -> Iterator[World]:
        if world.clock < CLOCK + self._ticks and not world.all_ended():
            yield replace(world, clock=world.clock + 1)
        for w, at in enumerate(world.writers):
            if at in {_LOCKS, _UNLOCKS}:
                yield replace(world, writers=_with(world.writers, w, at + 1))
            elif at == _STAMPS:
                stamps = _with(world.stamps, w, world.clock)
                yield replace(world, writers=_with(world.writers, w, _DECIDES), stamps=stamps)
            elif at == _DECIDES and world.prepared[w] == _NEW_NAME - 1:
                yield replace(world, prepared=_with(world.prepared, w, _NEW_NAME))
            elif at == _DECIDES:
                yield replace(world, writers=_with(world.writers, w, _UNLOCKS))
                stamps = _with(world.stamps, w, 0)
                yield replace(world, writers=_with(world.writers, w, _ROLLED_BACK), stamps=stamps)
                if w < self._prepared and not world.prepared[w]:
                    yield replace(world, prepared=_with(world.prepared, w, _NEW_NAME - 1))

    def _poll(
        self, world: World, machine: WriterLockBacktracking
    ) -> Iterator[tuple[World, WriterLockBacktracking, bool]]:
        if world.asked is None:
            place = machine.position.db_timestamp
            newest = max((e.db_timestamp for e in world.visible() if e.db_timestamp > place), default=None)
            asked = world.clock, None if newest is None else _number(newest)
            yield (
                replace(world, asked=asked, looks=world.looks + (world.all_ended() and machine._at_end)),
                machine,
                False,
            )
        elif world.holders is None:
            yield replace(world, holders=world.names()), machine, False
        else:
            poll = WritersPoll(_time(world.asked[0]), world.holders)
            newest = None if world.asked[1] is None else _time(world.asked[1])
            then = replace(world, asked=None, holders=None)
            if Look(1, poll, newest, _T0, 0).says_nothing_to(machine):
                yield then, machine, False
            used = copy.deepcopy(machine)
            used.polled(poll)
            yield then, used, True

    def _read(
        self, world: World, machine: WriterLockBacktracking, after: Position, until: datetime, *, keys: bool
    ) -> tuple[World, WriterLockBacktracking, bool]:
        """A page of one event."""
        page = [event for event in world.visible() if event > after and event.db_timestamp <= until][:1]
        handled = world.handled
        for event in page:
            handled = tuple(map(bool, _with(handled, event.slice, True)))
        read = copy.deepcopy(machine)
        last = page[-1] if page else None
        (read.keys_read if keys else read.events_read)(last, full=bool(page))
        return replace(world, handled=handled), read, True

    def _check_horizon(self, world: World, machine: WriterLockBacktracking) -> None:
        horizon = _number(machine.horizon)
        for w, stamp in enumerate(world.stamps):
            if stamp and stamp < horizon and not world.handled[w]:
                raise Lost(f"a horizon of {horizon} passes the event of writer {w}: {world}")


def observed_by_the_model(told: Iterator[str]) -> set[Observed]:
    """The same of the model, from what Spin prints while it explores it."""
    lines = (re.search(r"machine((?: \d+)+)", line) for line in told)
    return {tuple(map(int, found[1].split())) for found in lines if found}
