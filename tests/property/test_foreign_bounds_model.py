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

from journal import BEGINNING, Backtracking, Poll, Position, ReadEvents, ReadKeys, WriterLockBacktracking
from journal.backtracking import (
    START_MARGIN,
    SequenceBacktracking,
    TransactionStartBacktracking,
    WritersPoll,
)
from tests.fixtures.examples import examples
from tests.fixtures.foreign import OnlyForward

Program = list[tuple[int, int]]
Machine = Callable[[datetime], Backtracking]

SLOTS = 4
"""Transactions at a time, each of a source of its own."""
BEGIN, LOCK, INSERT, COMMIT, ROLLBACK, TICK, READ, CRASH = range(8)
CODES = [BEGIN, BEGIN, LOCK, INSERT, INSERT, INSERT, COMMIT, COMMIT, ROLLBACK, TICK, TICK, *[READ] * 8, CRASH]
programs = st.lists(st.tuples(st.sampled_from(CODES), st.integers(0, 31)), min_size=30, max_size=120)
page_sizes = st.integers(1, 5)
quick = settings(max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
SEEDS = [pytest.param(range(30), id="some"), pytest.param(range(30, 1500), id="many", marks=pytest.mark.slow)]


@dataclass
class Transaction:
    """
    An open transaction.

    It is stamped with its start a moment before it shows that it began. Inside the INSERT it locks the table, and then
    draws a number.
    """

    name: str
    start: datetime
    is_shown: bool = False
    has_lock: bool = False
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
            for one in self.open.values():
                one.is_shown |= self.clock - one.start > START_MARGIN / 2
        elif code == BEGIN and transaction is None:
            self.begun += 1
            self.open[slot] = Transaction(f"{self.begun}", self.clock)
        elif transaction is not None and code in {LOCK, INSERT}:
            transaction.is_shown = True
            if transaction.has_lock and code == INSERT:
                self.last[slot] += 1
                transaction.rows.append(Position(self.stamp(transaction), 0, f"s{slot}", self.last[slot]))
            transaction.has_lock = True
        elif transaction is not None and code in {COMMIT, ROLLBACK}:
            del self.open[slot]
            if code == COMMIT:
                self.visible = sorted([*self.visible, *transaction.rows])
            else:
                self.last[slot] -= len(transaction.rows)

    def stamp(self, transaction: Transaction) -> datetime:
        self.drawn += 1
        return BEGINNING + timedelta(microseconds=self.drawn)

    def place(self) -> datetime:
        """The lowest number that may still be drawn."""
        return BEGINNING + timedelta(microseconds=self.drawn + 1)

    def holders(self) -> list[Transaction]:
        return [one for one in self.open.values() if one.has_lock]


class Stamped(Numbered):
    """A table whose rows are stamped with the start of their transaction."""

    machine: Machine = TransactionStartBacktracking

    def stamp(self, transaction: Transaction) -> datetime:
        return transaction.start

    def place(self) -> datetime:
        return self.clock

    def holders(self) -> list[Transaction]:
        return [one for one in self.open.values() if one.is_shown]


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
        place, holders = self.world.place(), self.world.holders()
        yield
        if self.world.place_first:
            holders = self.world.holders()
        else:
            place = self.world.place()
        now = self.world.clock.timestamp()
        machine.polled(
            WritersPoll(
                place, frozenset(one.name for one in holders), asked_at=now, told_at=now,
                starts={one.name: one.start for one in holders},
            )
        )  # fmt: skip

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
    return [(chance.choice(CODES), chance.randrange(32)) for _ in range(length)]


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
        play.run(program_of(seed, 400))
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

    def holders(self) -> list[Transaction]:
        return [one for one in super().holders() if one.has_lock]


class WithoutMargin(Stamped):
    """Does not see who was stamped and has not yet shown it."""

    @staticmethod
    def machine(start: datetime) -> Backtracking:
        return WriterLockBacktracking(start, margin=timedelta(0))


@pytest.mark.parametrize("world", [ForwardByNumber, ForwardByTime, ListsHoldersFirst, ByLock, WithoutMargin])
def test_the_model_finds_what_a_wrong_bound_loses(world: type[Numbered]) -> None:
    def loses(seed: int) -> bool:
        play = Play(world(), 3)
        play.run(program_of(seed, 300))
        return bool(play.lost)

    assert any(loses(seed) for seed in range(2000))
