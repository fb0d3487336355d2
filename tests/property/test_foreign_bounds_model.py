"""
Journals of other systems: no late commit is lost, whatever happens between any two statements of a reader.

That events of a source come in their order is not for the bound: a reader looks up what it misses.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from journal import (
    BEGINNING,
    Backtracking,
    Poll,
    Position,
    ReadEvents,
    ReadKeys,
    WriterLockBacktracking,
)
from journal.backtracking import SequenceBacktracking, WritersPoll
from tests.fixtures.examples import examples
from tests.fixtures.foreign import OnlyForward

Program = list[tuple[int, int]]
Machine = Callable[[datetime], Backtracking]

SLOTS = 4
"""Transactions at a time, each of a source of its own."""
BEGIN, LOCK, INSERT, COMMIT, ROLLBACK, TICK, READ, CRASH, NEXT, PREPARE, LET_GO = range(11)
CODES = [BEGIN, BEGIN, LOCK, INSERT, INSERT, INSERT, COMMIT, COMMIT, ROLLBACK, TICK, TICK, *[READ] * 8, CRASH]
SESSIONS = [*CODES, *[READ] * 4, NEXT, PREPARE, PREPARE, LET_GO, LET_GO]
"""What sessions do, besides: another transaction in the same message; a transaction is prepared, in two steps."""
programs = st.lists(st.tuples(st.sampled_from(SESSIONS), st.integers(0, 31)), min_size=30, max_size=150)
page_sizes = st.integers(1, 5)
quick = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
SEEDS = [pytest.param(range(30), id="some"), pytest.param(range(30, 1500), id="many", marks=pytest.mark.slow)]


@dataclass
class Transaction:
    """
    An open transaction, of a session of its own.

    It is stamped with its start, and shows later that it began. Inside the INSERT it locks the table, and then draws a
    number.
    """

    name: str
    start: datetime
    is_shown: bool = False
    has_lock: bool = False
    is_next: bool = False
    """It began in the message of another: that is shown."""
    is_prepared: bool = False
    rows: list[Position] = field(default_factory=list)


class Numbered:
    """A table whose rows are numbered inside their INSERT."""

    machine: Machine = SequenceBacktracking
    place_first = True
    """The place is looked up before the list of what is open."""

    def __init__(self) -> None:
        self.clock = datetime(2026, 1, 1, tzinfo=UTC)
        self.drawn = self.begun = 0
        self.open: dict[int, Transaction] = {}
        self.last = [0] * SLOTS
        self.visible: list[Position] = []

    def act(self, code: int, number: int) -> None:
        slot = number % SLOTS
        transaction = self.open.get(slot)
        if code == TICK:
            self.clock += timedelta(milliseconds=1 + 4 * number)
        elif code == BEGIN and transaction is None:
            self.begin(slot, self.clock)
        elif transaction is not None:
            self.go_on(code, slot, transaction)

    def begin(self, slot: int, at: datetime, *, is_next: bool = False) -> None:
        self.begun += 1
        self.open[slot] = Transaction(self.name(slot, at), at, is_next=is_next)

    def name(self, slot: int, at: datetime) -> str:
        return f"{self.begun}"

    def go_on(self, code: int, slot: int, transaction: Transaction) -> None:
        if code in {LOCK, INSERT} and not transaction.is_prepared:
            transaction.is_shown = True
            if transaction.has_lock and code == INSERT:
                self.last[slot] += 1
                transaction.rows.append(Position(self.stamp(transaction), 0, f"s{slot}", self.last[slot]))
            transaction.has_lock = True
        elif code in {COMMIT, ROLLBACK, NEXT}:
            del self.open[slot]
            if code == ROLLBACK:
                self.last[slot] -= len(transaction.rows)
            else:
                self.visible = sorted([*self.visible, *transaction.rows])
            if code == NEXT and not transaction.is_prepared:
                self.begin(slot, transaction.start, is_next=True)

    def stamp(self, transaction: Transaction) -> datetime:
        self.drawn += 1
        return BEGINNING + timedelta(microseconds=self.drawn)

    def place(self) -> datetime:
        """The lowest number that may still be drawn."""
        return BEGINNING + timedelta(microseconds=self.drawn + 1)

    def looks(self) -> Generator[None, None, tuple[datetime, dict[str, datetime | None]]]:
        """A poll: the place, and the holders, each with its start if it shows one; anything happens in between."""
        if self.place_first:
            place = self.place()
            yield
            return place, self.holders()
        holders = self.holders()
        yield
        return self.place(), holders

    def holders(self) -> dict[str, datetime | None]:
        return {one.name: None for one in self.open.values() if one.has_lock}


class Stamped(Numbered):
    """
    A table whose rows are stamped with the start of their transaction.

    A session that has no transaction waits for a message. From when it has one it is stamped, however long it takes to
    show it.
    """

    machine: Machine = WriterLockBacktracking

    def go_on(self, code: int, slot: int, transaction: Transaction) -> None:
        if code == PREPARE and transaction.rows:
            transaction.is_prepared = True
        elif code == LET_GO and transaction.is_prepared:
            transaction.is_shown = False
        else:
            super().go_on(code, slot, transaction)

    def name(self, slot: int, at: datetime) -> str:
        return f"{slot} {at.timestamp()}"

    def stamp(self, transaction: Transaction) -> datetime:
        return transaction.start

    def place(self) -> datetime:
        return self.clock

    def looks(self) -> Generator[None, None, tuple[datetime, dict[str, datetime | None]]]:
        place = self.place()
        yield
        waiting = self.waiting()
        yield
        found = self.sessions(waiting)
        yield
        return place, found | self.prepared()

    def waiting(self) -> set[int]:
        return {slot for slot in range(SLOTS) if slot not in self.open or self._has_let_go(slot)}

    def sessions(self, waiting: set[int]) -> dict[str, datetime | None]:
        found: dict[str, datetime | None] = {}
        for slot in range(SLOTS):
            one = None if self._has_let_go(slot) else self.open.get(slot)
            if one is not None and (one.is_shown or one.is_next):
                found[one.name] = one.start
            elif slot not in waiting:
                found[f"{slot} ? {self.begun}"] = None
        return found

    def prepared(self) -> dict[str, datetime | None]:
        return {f"p{one.name}": None for one in self.open.values() if one.is_prepared}

    def _has_let_go(self, slot: int) -> bool:
        one = self.open.get(slot)
        return one is not None and one.is_prepared and not one.is_shown


class Play:
    """A program over a table and one reader, which may crash and starts again from what it has saved."""

    def __init__(self, world: Numbered, page_size: int) -> None:
        self.world = world
        self.page_size = page_size
        self.horizon = BEGINNING
        self.handled: list[tuple[str, int]] = []
        self.reader = self.read()

    def read(self) -> Generator[None, None, None]:
        machine = type(self.world).machine(self.horizon)
        while True:
            match machine.next_step():
                case Poll():
                    yield from self.poll(machine)
                case ReadKeys(after, until):
                    page = self.page(after, until)
                    machine.keys_read(page[-1] if page else None, full=len(page) == self.page_size)
                case ReadEvents(after, until):
                    page = self.page(after, until)
                    machine.events_read(page[-1] if page else None, full=len(page) == self.page_size)
            self.horizon = machine.horizon
            yield

    def poll(self, machine: Backtracking) -> Generator[None, None, None]:
        place, holders = yield from self.world.looks()
        now = self.world.clock.timestamp()
        starts = {name: start for name, start in holders.items() if start is not None}
        machine.polled(WritersPoll(place, frozenset(holders), asked_at=now, told_at=now, starts=starts))

    def page(self, after: Position, until: datetime) -> list[Position]:
        """Read a page and handle what is new: its effects commit."""
        page = [p for p in self.world.visible if p > after and p.db_timestamp <= until][: self.page_size]
        self.handled += [key for p in page if (key := (p.source_id, p.seq_nr)) not in self.handled]
        return page

    def run(self, program: Program) -> None:
        for code, number in program:
            if code == READ:
                next(self.reader)
            elif code == CRASH:
                self.reader = self.read()
            else:
                self.world.act(code, number)
        for slot in range(SLOTS):
            self.world.act(COMMIT, slot)
        for _ in range(20 + 6 * len(self.world.visible)):
            next(self.reader)

    @property
    def lost(self) -> set[tuple[str, int]]:
        return {(p.source_id, p.seq_nr) for p in self.world.visible} - set(self.handled)

    def check(self) -> None:
        assert not self.lost
        assert len(self.handled) == len(self.world.visible)


def program_of(seed: int, length: int) -> Program:
    chance = random.Random(seed)
    return [(chance.choice(SESSIONS), chance.randrange(32)) for _ in range(length)]


@pytest.mark.parametrize("world", [Numbered, Stamped])
def test_bounds_keep_the_invariants(world: type[Numbered]) -> None:
    @given(programs, page_sizes)
    @quick
    def check(program: Program, page_size: int) -> None:
        play = Play(world(), page_size)
        play.run(program)
        play.check()

    check()


@pytest.mark.parametrize("world", [Numbered, Stamped])
@pytest.mark.parametrize("seeds", SEEDS)
def test_long_histories_keep_the_invariants(world: type[Numbered], seeds: Sequence[int]) -> None:
    handled = 0
    for seed in seeds:
        play = Play(world(), 1 + seed % 5)
        play.run(program_of(seed, 600))
        play.check()
        handled += len(play.handled)

    assert handled > 8 * len(seeds)  # the histories are not empty


class ForwardByNumber(Numbered):
    machine = OnlyForward


class ForwardByTime(Stamped):
    machine = OnlyForward


class ListsHoldersFirst(Numbered):
    """What takes the lock, draws a number and commits between the two looks is not in the list, and below the place."""

    place_first = False


class ByLock(Stamped):
    """The bound of our own journal: who takes the lock after a poll is stamped after it."""

    def sessions(self, waiting: set[int]) -> dict[str, datetime | None]:
        return self.holders()


class OnlyShown(Stamped):
    """Does not see who was stamped and has not yet shown it, with a margin for short moments."""

    @staticmethod
    def machine(start: datetime) -> Backtracking:
        return WriterLockBacktracking(start, margin=timedelta(milliseconds=250))

    def waiting(self) -> set[int]:
        return {*range(SLOTS)}


class LooksWhoWaitsLast(Stamped):
    """Who shows nothing, and is then shown its start and answered, waits for its next message in between."""

    def looks(self) -> Generator[None, None, tuple[datetime, dict[str, datetime | None]]]:
        place = self.place()
        yield
        shown = {one.name for one in self.open.values() if one.is_shown or one.is_next}
        yield
        waiting = self.waiting() | {slot for slot, one in self.open.items() if one.is_shown}
        found = self.sessions(waiting)
        found = {name: start for name, start in found.items() if start is None or name in shown}
        return place, found | self.prepared()


class OnlyTransactions(Stamped):
    """Takes a session that shows no transaction for idle, while it does the rest of its message."""

    def sessions(self, waiting: set[int]) -> dict[str, datetime | None]:
        between = {one.name for one in self.open.values() if one.is_next and not one.is_shown}
        return {name: start for name, start in super().sessions(waiting).items() if name not in between}


class PreparedFirst(Stamped):
    """Looks for what is prepared before the sessions: what is prepared in between is in neither list."""

    def looks(self) -> Generator[None, None, tuple[datetime, dict[str, datetime | None]]]:
        place, prepared = self.place(), self.prepared()
        yield
        waiting = self.waiting()
        yield
        return place, self.sessions(waiting) | prepared


class NamesOnce(Stamped):
    """A transaction that is prepared is bound when it is first seen, though its session still shows the same one."""

    class machine(WriterLockBacktracking):
        def _bound_of(self, holder: str, poll: WritersPoll, gone: Sequence[datetime]) -> datetime:
            return self._bounds.get(holder) or super()._bound_of(holder, poll, gone)


@pytest.mark.slow
@pytest.mark.parametrize(
    "world",
    [
        ForwardByNumber, ForwardByTime, ListsHoldersFirst, ByLock, OnlyShown, LooksWhoWaitsLast, OnlyTransactions,
        PreparedFirst, NamesOnce,
    ],
)  # fmt: skip
def test_the_model_finds_what_a_wrong_bound_loses(world: type[Numbered]) -> None:
    def loses(seed: int) -> bool:
        play = Play(world(), 3)
        play.run(program_of(seed, 300))
        return bool(play.lost)

    assert any(loses(seed) for seed in range(2000))
