"""A model of the database of the journal: a clock, transactions in flight, offsets; time in microseconds."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from journal import BEGINNING, Position

T0 = datetime(2030, 1, 1, tzinfo=UTC)
MARGIN = timedelta(milliseconds=20)
SOURCES = [f"s{i}" for i in range(6)]
INSTANT = timedelta(microseconds=1)


class Broken(AssertionError):
    """An invariant does not hold."""


def slice_number(source_id: str) -> int:
    return SOURCES.index(source_id) * 170


def entity_type(source_id: str) -> str:
    return f"type{SOURCES.index(source_id) // 2}"


@dataclass
class Transaction:
    name: str
    locked: bool = False
    imports_from: datetime | None = None
    events: list[Position] = field(default_factory=list)
    tails: dict[str, tuple[int, datetime]] = field(default_factory=dict)


@dataclass
class RangeRow:
    low: int
    high: int
    horizon: datetime = BEGINNING
    import_id: int = 0
    epoch: int = 0
    commits: int = 0

    def holds(self, slice_: int) -> bool:
        return self.low <= slice_ <= self.high


class WentBack(Exception):
    """A reader has found that the database is in an earlier state than it remembers."""


class Lost(Broken):
    """A committed event has not been handled."""


_HELD = (
    "log",
    "by_source",
    "tails",
    "imports",
    "imported",
    "offsets",
    "evicted_before",
    "handled",
    "reported",
)


class World:
    """
    The database, and what a projection has done with it.

    Args:
        late_by: How long a transaction may stay open after its first timestamp; None for as long as it likes.
        retention: How far behind the horizons offsets are evicted.
    """

    def __init__(self, *, late_by: timedelta | None = None, retention: timedelta = MARGIN) -> None:
        self.late_by = late_by
        self.retention = retention
        self.now = self.latest = T0
        self.steady = 0.0
        self.log: list[Position] = []
        self.by_source: dict[str, list[Position]] = {s: [] for s in SOURCES}
        self.tails = dict.fromkeys(SOURCES, (0, BEGINNING))
        self.open: list[Transaction] = []
        self.prepared: list[Transaction] = []
        self.imports: list[tuple[int, datetime]] = []
        self.imported: set[Position] = set()
        self.offsets: dict[str, tuple[int, datetime]] = {}
        self.evicted_before = BEGINNING
        self.handled = dict.fromkeys(SOURCES, 0)
        self.reported = dict.fromkeys(SOURCES, BEGINNING)
        self.allowance: timedelta | None = timedelta(0)
        self.replayed_until: datetime | None = None
        self.generation = 0
        """What a poll shows; :attr:`lives` counts restores in place, too, which it does not show."""
        self.lives = 0
        self.left_out = 0
        """How many batches have left offsets out."""
        self._names = 0

    # Going back

    def state(self) -> dict[str, Any]:
        """A copy of all that the database holds; what is in flight is not among it."""
        return deepcopy({name: getattr(self, name) for name in _HELD})

    def go_back(self, to: dict[str, Any], *, shown: bool) -> None:
        """Put an earlier state in the place of what there is; a poll shows that of a fail-over."""
        vars(self).update(deepcopy(to))
        self.open, self.prepared = [], []
        self.lives += 1
        self.generation += shown

    # The writers' side

    def tick(self, by: timedelta) -> None:
        if self.late_by is not None:
            for transaction in [*self.open, *self.prepared]:
                own = [e for e in transaction.events if e not in self.imported]
                if own and self.now + by - min(own).db_timestamp > self.late_by:
                    self.commit(transaction)
        self.steady += by.total_seconds()
        self.now += by
        self.latest = max(self.latest, self.now)

    def step_back(self, by: timedelta, at_most: timedelta) -> None:
        """The clock goes back, but never to more than ``at_most`` before the latest time shown."""
        self.now = max(self.now - by, self.latest - at_most)
        self.allowance = at_most if at_most <= MARGIN and self.allowance is not None else None

    def begin(self) -> Transaction:
        self._names += 1
        self.open.append(Transaction(f"{self._names % 3}/{self._names}"))
        return self.open[-1]

    def _is_free(self, source_id: str, transaction: Transaction) -> bool:
        others = (t for t in [*self.open, *self.prepared] if t is not transaction)
        return not any(source_id in t.tails for t in others)

    def append(self, transaction: Transaction, source_id: str, count: int) -> None:
        transaction.locked = True  # a writer that has to wait for the row holds the lock meanwhile
        if not self._is_free(source_id, transaction):
            return
        seq_nr, last = transaction.tails.get(source_id, self.tails[source_id])
        first = max(self.now, last + INSTANT)
        self._add(transaction, source_id, seq_nr, first, count)

    def _add(
        self, transaction: Transaction, source_id: str, seq_nr: int, first: datetime, count: int
    ) -> None:
        for i in range(count):
            at = first + i * INSTANT
            transaction.events.append(Position(at, slice_number(source_id), source_id, seq_nr + i + 1))
            transaction.tails[source_id] = (seq_nr + i + 1, at)

    def import_history(self, transaction: Transaction, source_id: str, back: timedelta, count: int) -> None:
        busy = any(t.imports_from for t in [*self.open, *self.prepared])
        transaction.locked = True
        if busy or not self._is_free(source_id, transaction):
            return
        seq_nr, last = transaction.tails.get(source_id, self.tails[source_id])
        first = max(self.now - back, last + INSTANT, self.evicted_before)
        if first + count * INSTANT > self.now:
            return
        before = len(transaction.events)
        self._add(transaction, source_id, seq_nr, first, count)
        self.imported.update(transaction.events[before:])
        transaction.imports_from = first

    def prepare(self, transaction: Transaction, *, keeps_name: bool) -> None:
        self.open.remove(transaction)
        self.prepared.append(transaction)
        self._names += 1
        transaction.name = f"p{transaction.name}" if keeps_name else f"p-1/{self._names}"

    def undo(self, transaction: Transaction) -> None:
        """ROLLBACK TO SAVEPOINT: rows and locks are gone, the transaction stays."""
        transaction.events.clear()
        transaction.tails.clear()
        transaction.locked, transaction.imports_from = False, None

    def end(self, transaction: Transaction) -> None:
        (self.open if transaction in self.open else self.prepared).remove(transaction)

    def commit(self, transaction: Transaction) -> None:
        self.end(transaction)
        self.tails.update(transaction.tails)
        self._show(transaction)

    def _show(self, transaction: Transaction) -> None:
        for event in transaction.events:
            insort(self.log, event)
            self.by_source[event.source_id].append(event)
        if transaction.imports_from:
            self.imports.append((len(self.imports) + 1, transaction.imports_from))

    # The readers' side

    def holders(self) -> frozenset[str]:
        return frozenset(t.name for t in [*self.open, *self.prepared] if t.locked)

    def entity_types(self) -> set[str]:
        """Those of the events that are visible."""
        return {entity_type(event.source_id) for event in self.log}

    def newest_after(self, place: datetime) -> datetime | None:
        return self.log[-1].db_timestamp if self.log and self.log[-1].db_timestamp > place else None

    def evict(self, rows: Iterable[RangeRow]) -> None:
        """What _evict_offsets_v1 does: it waits for open imports, and minds those not read yet."""
        if any(t.imports_from for t in [*self.open, *self.prepared]):
            return
        settled = [row.horizon for row in rows]
        unread = [at for row in rows for number, at in self.imports if number > row.import_id]
        self.evicted_before = max(self.evicted_before, min([*settled, *unread]) - self.retention)
        self.offsets = {s: o for s, o in self.offsets.items() if o[1] >= self.evicted_before}

    def may_evict(self, row: RangeRow, import_id: int) -> bool:
        """``_may_evict_v1``, but for imports that may follow others, which lose nothing."""
        return (row.low, row.high) == (0, 1023) and all(number <= import_id for number, _ in self.imports)

    def evict_up_to(self, row: RangeRow, import_id: int, until: datetime) -> datetime | None:
        """``_evict_up_to_v1``: what may be left out of a batch that is all before this time."""
        bound = min(until, self.now - self.retention)
        if any(t.imports_from for t in [*self.open, *self.prepared]) or not self.may_evict(row, import_id):
            return None
        if bound <= self.evicted_before:
            return None
        self.evicted_before = bound
        self.left_out += 1
        return bound

    def handle(self, events: Sequence[Position]) -> None:
        """A batch's transaction: effects and offsets; checks invariants 3 and 4 and the horizon."""
        for event in events:
            if event.seq_nr != self.handled[event.source_id] + 1:
                raise Broken(f"{event} is handled after {self.handled[event.source_id]}")
            reported = self.reported[event.source_id]
            exempt = self.allowance is None or event in self.imported
            if not exempt and event.db_timestamp < reported - (self.allowance or timedelta(0)):
                raise Broken(f"{event} is handled after a horizon of {reported}")
            self.handled[event.source_id] = event.seq_nr
            self.offsets[event.source_id] = (event.seq_nr, event.db_timestamp)

    def check_nothing_is_lost(self) -> None:
        committed = {s: len(events) for s, events in self.by_source.items()}
        if committed != self.handled:
            raise Lost(f"committed {committed}, handled {self.handled}")


class Standby(World):
    """Readers see what is replayed: commits in their order, some time later, perhaps a long time."""

    def __init__(self, *, late_by: timedelta | None = None, retention: timedelta = MARGIN) -> None:
        super().__init__(late_by=late_by, retention=retention)
        self.replayed_until = T0
        self._unreplayed: list[tuple[datetime, Transaction]] = []
        self.replayed = 0

    def _show(self, transaction: Transaction) -> None:
        self._unreplayed.append((self.now, transaction))

    @property
    def place(self) -> int:
        """Where the log of the primary ends: so many commits."""
        return self.replayed + len(self._unreplayed)

    def primary_imports(self) -> dict[int, datetime]:
        """Those that the primary shows."""
        late = [t.imports_from for _, t in self._unreplayed if t.imports_from]
        return dict([*self.imports, *enumerate(late, len(self.imports) + 1)])

    def replay(self, count: int | None = None) -> None:
        """Replay so many commits, or all."""
        for at, transaction in self._unreplayed[:count]:
            super()._show(transaction)
            self.replayed_until = at
            self.replayed += 1
        self._unreplayed = [] if count is None else self._unreplayed[count:]

    def evict(self, rows: Iterable[RangeRow]) -> None:
        if not any(transaction.imports_from for _, transaction in self._unreplayed):
            super().evict(rows)
