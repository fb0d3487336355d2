"""
Readers of the modelled journal, which take one statement at a time.

Between any two statements anything may happen. A reader is a generator that yields there; dropping it is a
crash, and only what it has saved is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Generator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, ClassVar

from journal import Backtracking, Poll, Position, ReadEvents, ReadKeys, WriterLockBacktracking
from journal.backtracking import WritersPoll
from offsets import OffsetState, Verdict
from tests.property.journal_model import (
    MARGIN,
    SOURCES,
    Broken,
    RangeRow,
    Standby,
    WentBack,
    World,
    entity_type,
    slice_number,
)

REFRESH = 1.0
"""Seconds after which a poll is used whatever it says."""
IDLE_POLLS = 6
"""Polls without news after which a reader has read all there is."""
MOST_ROUNDS = 5000

Machine = Callable[[datetime, int], Backtracking]


class Poller:
    """
    What a process knows of the database's generation, which outlives its readers.

    Args:
        world: The database.
    """

    def __init__(self, world: World) -> None:
        self.generation = world.generation
        self.back_to: datetime | None = None
        self.asked_at: float | None = None

    def polled(self, world: World, asked_at: float, polled_at: datetime) -> None:
        if world.generation != self.generation:
            self.generation = world.generation
            gone_by = 0.0 if self.asked_at is None else world.steady - self.asked_at
            self.back_to = polled_at - timedelta(seconds=gone_by)
        self.asked_at = asked_at


class Reader:
    """
    The holder of one range, as a runner of projections works.

    Args:
        world: The database.
        row: The range; what it says is where the reader starts.
        machine: Makes the state machine from a stored horizon and import.
        page_size: Rows of a page.
        poller: That of its process; a process of its own by default.
        not_after: Where it starts at the latest.
    """

    reads_before_it_polls: ClassVar[bool] = False
    compares_commits: ClassVar[bool] = True
    compares_lives: ClassVar[bool] = True
    compares_generations: ClassVar[bool] = True
    evicts: ClassVar[bool] = True

    def __init__(
        self,
        world: World,
        row: RangeRow,
        machine: Machine,
        page_size: int,
        poller: Poller | None = None,
        *,
        not_after: datetime | None = None,
    ) -> None:
        self.world = world
        self.row = row
        self.poller = poller or Poller(world)
        self.generation = self.poller.generation
        self.life = world.lives
        row.epoch += 1
        self.epoch, self.commits = row.epoch, row.commits
        start = row.horizon if not_after is None else min(row.horizon, not_after)
        self.machine = machine(start, row.import_id)
        self.page_size = page_size
        self.state = OffsetState(page_size, world.evicted_before)
        self.used_at = -REFRESH
        self.polled_at = start
        self._filled = self._settled = False
        self.idle_polls = 0
        self.noticed_at = -1.0
        """Steady time of the last poll that counts and is saved."""
        self._snapshot: list[Position] | None = None
        self.statements = self._run()

    def _report(self) -> None:
        for source_id in SOURCES:
            if self.row.holds(slice_number(source_id)):
                self.world.reported[source_id] = max(self.world.reported[source_id], self.machine.horizon)

    def _save(self) -> None:
        if self.compares_lives and self.world.lives != self.life:
            raise WentBack  # by the generation that its events were read in, or the heartbeat before them
        if self.compares_commits and (self.row.epoch, self.row.commits) != (self.epoch, self.commits):
            raise WentBack
        self.row.commits += 1
        self.commits = self.row.commits
        self.row.horizon = self.machine.horizon
        self.row.import_id = self.machine.import_id
        self.noticed_at = self.used_at

    def _run(self) -> Generator[None, bool, None]:
        while True:
            match self.machine.next_step():
                case Poll():
                    yield from self._poll()
                case ReadKeys(after, until):
                    keys = yield from self._page(after, until)
                    yield
                    yield from self._look_up(keys)
                    late = [k for k in keys if self._verdict(k) is not Verdict.DUPLICATE]
                    yield from self._handle(late)
                    self.machine.keys_read(keys[-1] if keys else None, full=len(keys) == self.page_size)
                case ReadEvents(after, until):
                    page = yield from self._page(after, until)
                    yield
                    settled = self._is_settled(page)
                    yield
                    yield from self._handle(page, settled=settled)
                    self.machine.events_read(page[-1] if page else None, full=len(page) == self.page_size)
            self._report()
            if (yield):
                self._save()

    def _entity_types(self) -> Generator[None, bool, set[str]]:
        """Those whose events the next statement is to read: all, without looking."""
        yield from ()
        return set(map(entity_type, SOURCES))

    def _page(self, after: Position, until: datetime) -> Generator[None, bool, list[Position]]:
        types = yield from self._entity_types()
        log = self.world.log if self._snapshot is None else self._snapshot
        page: list[Position] = []
        for event in log[bisect_right(log, after) :]:
            if len(page) == self.page_size or event.db_timestamp > until:
                break
            if self.row.holds(event.slice) and entity_type(event.source_id) in types:
                page.append(event)
        return page

    def _poll(self) -> Generator[None, bool, None]:
        world, place = self.world, self.machine.position.db_timestamp
        if self.reads_before_it_polls:
            self._snapshot = list(world.log)
            yield
        asked_at, polled_at, replayed_until = world.steady, world.now, world.replayed_until
        replayed = len(world.log)
        life = world.lives
        self.poller.polled(world, asked_at, polled_at)
        if self.compares_generations and self.poller.generation != self.generation:
            raise WentBack
        yield
        newest, imports = world.newest_after(place), dict(world.imports)
        yield
        holders = world.holders()
        yield
        if world.lives != life:
            raise WentBack  # it is one statement: the connection is lost in it
        poll = WritersPoll(
            polled_at, holders, imports, asked_at, world.steady, replayed_until, replayed=replayed
        )
        self._use(poll, asked_at, newest)

    def _use(self, poll: WritersPoll, asked_at: float, newest: datetime | None) -> None:
        fresh = self.world.steady - self.used_at < REFRESH
        nothing_new = newest is None or newest <= self.machine.position.db_timestamp
        self.idle_polls = self.idle_polls + 1 if nothing_new else 0
        if not (fresh and nothing_new and self.machine.unchanged(poll)):
            self.used_at, self.polled_at = asked_at, poll.polled_at
            self.machine.polled(poll)

    def _look_up(self, events: Sequence[Position]) -> Generator[None, bool, None]:
        sources = {e.source_id for e in events}
        unknown = self.state.unknown(sources)
        self.state.loaded(unknown, {s: self.world.offsets[s][0] for s in unknown if s in self.world.offsets})
        yield
        # After the look-up: an offset that it did not find may have been evicted just before.
        self.state.evicted_before = self.world.evicted_before
        self._batch = self.state.batch(sources)

    def _verdict(self, event: Position) -> Verdict:
        verdict = self._batch.validate(event.source_id, event.seq_nr, event.db_timestamp)
        if verdict is not Verdict.UNKNOWN_SOURCE:
            return verdict
        if self._settled:
            return Verdict.ACCEPTED
        before = (e for e in self.world.by_source[event.source_id] if e.seq_nr == event.seq_nr - 1)
        return self._batch.validate_unknown(next((e.db_timestamp for e in before), None))

    def _is_settled(self, page: Sequence[Position]) -> bool:
        """As ``Acceptance.is_settled`` and ``Transactions.may_evict``."""
        world, settled = self.world, self.machine.settled
        old = self.polled_at - world.retention
        if (
            not (page and self.evicts and settled)
            or isinstance(world, Standby)
            or page[-1].db_timestamp >= min(settled, old)
            or not world.may_evict(self.row, self.machine.import_id)
        ):
            self.state.complete = False
            return False
        if not self._filled:
            self._filled = True
            self.state.filled({source_id: seq_nr for source_id, (seq_nr, _) in world.offsets.items()})
            self.state.evicted_before = world.evicted_before
        return True

    def _handle(self, page: Sequence[Position], *, settled: bool = False) -> Generator[None, bool, None]:
        self._settled = settled
        yield from self._look_up(page)
        accepted: list[Position] = []
        for event in page:
            if (verdict := self._verdict(event)) is Verdict.GAP:
                yield
                for missing in self.world.by_source[event.source_id]:
                    if missing.seq_nr < event.seq_nr:
                        self._accept(missing, accepted)
            if verdict is not Verdict.DUPLICATE:
                self._accept(event, accepted)
        yield
        if accepted:
            self._save()
            self.world.handle(accepted)
            until = accepted[-1].db_timestamp if settled else None
            bound = until and self.world.evict_up_to(self.row, self.machine.import_id, until)
            last = {e.source_id: e for e in accepted}
            gone = [s for s, e in last.items() if bound and e.db_timestamp < bound]
            for source_id in gone:
                del self.world.offsets[source_id]
            yield
            self.state.committed({s: e.seq_nr for s, e in last.items() if s not in gone})
            if bound:
                self.state.evicted(gone, bound)

    def _accept(self, event: Position, accepted: list[Position]) -> None:
        if self._verdict(event) is Verdict.ACCEPTED:
            self._batch.accept(event.source_id, event.seq_nr)
            accepted.append(event)


class MergesTypes(Reader):
    """Asks in a statement of its own which entity types there are, and then reads the events of those."""

    def _entity_types(self) -> Generator[None, bool, set[str]]:
        types = self.world.entity_types()
        yield
        return types


class BesidePrimary(Reader):
    """Reads a standby, and asks its primary what is open: a poll counts once the standby is as far."""

    place_before_holders: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, *args: Any, **options: Any) -> None:
        self._waiting: list[tuple[int, WritersPoll]] = []
        self._counts: WritersPoll | None = None
        super().__init__(*args, **options)

    def _poll(self) -> Generator[None, bool, None]:
        world = self.world
        assert isinstance(world, Standby)
        asked_at, polled_at, place = world.steady, world.now, world.place
        yield
        imports = world.primary_imports()
        yield
        holders = world.holders()
        yield
        if not self.place_before_holders:
            place = world.place
        self._waiting.append((place, WritersPoll(polled_at, holders, imports, asked_at, world.steady)))
        yield
        replayed = world.replayed if self.waits else world.place
        yield
        newest = world.newest_after(self.machine.position.db_timestamp)
        yield
        ready = [poll for place, poll in self._waiting if place <= replayed]
        self._counts = ready[-1] if ready else self._counts
        self._waiting = [one for one in self._waiting if one[0] > replayed]
        if self._counts is not None:
            self._use(self._counts, asked_at, newest)


def writer_lock(start: datetime, import_id: int) -> Backtracking:
    return WriterLockBacktracking(start, margin=MARGIN, import_id=import_id)


class Play:
    """
    A world, its readers, and a program of what happens in which order.

    Args:
        machine: Makes the readers' state machine.
        page_size: Rows of a page.
        reader: The class of the readers.
        late_by: As of :class:`World`.
        steps_back: How far the clock may go back; 0 for never.
        world: The class of the world.
        checks_horizon: Also fail where a horizon was reported too early, which comes before a loss.
    """

    def __init__(
        self,
        machine: Machine = writer_lock,
        page_size: int = 3,
        *,
        reader: type[Reader] = Reader,
        late_by: timedelta | None = None,
        steps_back: timedelta = timedelta(0),
        world: type[World] = World,
        checks_horizon: bool = True,
    ) -> None:
        self.world = world(late_by=late_by, retention=max(MARGIN, 2 * steps_back))
        if not checks_horizon:
            self.world.allowance = None
        self._machine, self._page_size, self._reader = machine, page_size, reader
        self._steps_back = steps_back
        self._stepped_at = -1.0
        self.rows = [RangeRow(0, 1023)]
        self._start_readers()

    def _start_readers(self) -> None:
        self.readers = [self._start(row) for row in self.rows]

    def _start(self, row: RangeRow) -> Reader:
        reader = self._reader(self.world, row, self._machine, self._page_size)
        next(reader.statements)
        return reader

    def _may_restart(self) -> bool:
        """A larger step of the clock has to be seen by a poll before a restart forgets the poll before it."""
        return all(reader.noticed_at > self._stepped_at for reader in self.readers)

    def run(self, program: Sequence[tuple[int, int, int]]) -> None:
        """Run a program, end what is open, let the readers read to the end, and check the invariants."""
        for code, a, b in program:
            self._act(code, a, b)
        for number, transaction in enumerate([*self.world.open, *self.world.prepared]):
            self.world.commit(transaction) if number % 4 else self.world.end(transaction)
        if isinstance(self.world, Standby):
            self.world.replay()
        self.drain()
        self.world.check_nothing_is_lost()

    def drain(self) -> None:
        """Let the readers poll until nothing is new; for longer where passing over polls has to end first."""
        for reader in self.readers:
            reader.idle_polls = 0
        long = self._stepped_at >= 0 or self.world.late_by is not None
        rounds = 0
        # Where time stands still there may be news for ever: a stamp of another range, a little after that time.
        still = isinstance(self.world, Standby) and self.world.late_by is not None
        while rounds < 60 * long or (
            not still and min(reader.idle_polls for reader in self.readers) < IDLE_POLLS
        ):
            rounds += 1
            if rounds > MOST_ROUNDS:
                raise Broken("a reader does not come to an end")
            self.world.tick(timedelta(milliseconds=1 if not long else 30))
            for index in range(len(self.readers)):
                for _ in range(20):
                    self._step(index, saves=True)

    def _act(self, code: int, a: int, b: int) -> None:
        world = self.world
        transaction = world.open[a % len(world.open)] if world.open else None
        source_id = SOURCES[b % len(SOURCES)]
        match code:
            case 0:
                world.tick(timedelta(microseconds=a * 100))
            case 1:
                world.tick(timedelta(milliseconds=a * b // 4))
            case 2 if len(world.open) < 5:
                world.append(world.begin(), source_id, 1 + a % 3)
            case 3 if transaction:
                world.append(transaction, source_id, 1 + a % 3)
            case 4 | 5 if transaction:
                world.commit(transaction)
            case 6 if transaction:
                [world.end, world.undo, world.end, world.commit][b % 4](transaction)
            case 7 if transaction:
                world.prepare(transaction, keeps_name=b % 2 == 0)
            case 8 if world.prepared:
                [world.commit, world.end][b % 5 == 0](world.prepared[a % len(world.prepared)])
            case 9 if len(world.open) < 5 and a % 2:
                world.import_history(world.begin(), source_id, timedelta(milliseconds=a * b), 1 + a % 3)
            case 10 if self._steps_back:
                world.step_back(timedelta(milliseconds=a * b), self._steps_back)
                if self._steps_back > MARGIN:
                    self._stepped_at = world.steady
            case 11 if self._may_restart():
                index = a % len(self.readers)
                self.readers[index] = self._start(self.rows[index])
            case 12 if self._may_restart():
                self._cut_anew(1 + b % 3)
            case 13:
                world.evict(self.rows)
            case 15 if isinstance(world, Standby):
                world.replay(1 + a % 4)
            case _:
                for _ in range(1 + b % 8):
                    self._step(a % len(self.readers), saves=b % 3 != 0)

    def _step(self, index: int, *, saves: bool) -> None:
        """Let a reader run one statement; between two steps of its machine it may save how far it is."""
        self.readers[index].statements.send(saves)

    def _cut_anew(self, count: int) -> None:
        """What _set_ranges_v1 does: a new range takes the smallest horizon and import of its parts."""
        bounds = [i * 1024 // count for i in range(count + 1)]
        old = self.rows
        self.rows = []
        for low, high in pairwise(bounds):
            parts = [r for r in old if r.low < high and low <= r.high]
            horizon, import_id = min(r.horizon for r in parts), min(r.import_id for r in parts)
            epoch = max(r.epoch for r in old) + 1
            self.rows.append(RangeRow(low, high - 1, horizon, import_id, epoch))
        self._start_readers()
