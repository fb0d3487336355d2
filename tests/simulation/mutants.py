"""
Seeded bugs: each leaves out one thing that the design relies on. A simulation that finds them is worth something.

Most change the code of the library; those of SQL functions change their model, as a change of the function would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from journal import Generation, Position, WriterLockBacktracking
from journal.backtracking import WritersPoll
from journal.database.base import BaseSession
from offsets import Verdict
from offsets.deduplication import BatchVerdicts
from projections.running.parking import Parking
from projections.running.transactions import Transactions
from tests.simulation.postgres import holding, offsets, statements
from tests.simulation.postgres.backend import Backend

Mutant = Callable[[], AbstractContextManager[Any]]

MUTANTS: dict[str, Mutant] = {}
"""By what they do."""


def _mutant(name: str) -> Callable[[Mutant], Mutant]:
    def register(mutant: Mutant) -> Mutant:
        MUTANTS[name] = mutant
        return mutant

    return register


def _method(kind: type, name: str, wrong: Any) -> AbstractContextManager[Any]:
    return mock.patch.object(kind, name, wrong)


@_mutant("a window does not reach back to the poll before")
def _windows_for_known_holders() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking.polled

    def polled(self: WriterLockBacktracking, poll: WritersPoll) -> None:
        known_ones_went = not poll.holders.issuperset(self._bounds)
        right(self, poll)
        if self._window is not None and not known_ones_went:
            self._window_is_read()

    return _method(WriterLockBacktracking, "polled", polled)


@_mutant("a window that a page cuts short counts as read")
def _windows_of_one_page() -> AbstractContextManager[Any]:
    def keys_read(self: WriterLockBacktracking, last: Position | None, *, full: bool) -> None:
        self._window_is_read()

    return _method(WriterLockBacktracking, "keys_read", keys_read)


@_mutant("who is in flight is forgotten")
def _no_bounds() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking._window_is_read

    def window_is_read(self: WriterLockBacktracking) -> None:
        right(self)
        self._bounds = {}

    return _method(WriterLockBacktracking, "_window_is_read", window_is_read)


@_mutant("the horizon is the last time that was read")
def _horizon_is_the_position() -> AbstractContextManager[Any]:
    def horizon(self: WriterLockBacktracking) -> datetime:
        return max(self._position.db_timestamp, self._start)

    return _method(WriterLockBacktracking, "horizon", property(horizon))


@_mutant("a prepared transaction is taken for one that has just begun")
def _trusts_a_new_name() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking._window_is_read

    def window_is_read(self: WriterLockBacktracking) -> None:
        for holder in self._poll.holders if self._poll else ():
            self._bounds.setdefault(holder, self._polled_at)
        right(self)

    return _method(WriterLockBacktracking, "_window_is_read", window_is_read)


@_mutant("memory moves before the commit")
def _memory_before_commit() -> AbstractContextManager[Any]:
    right = Transactions._try

    async def tries(self: Transactions, session: Any, last: Any, handled: int, work: Any) -> bool:
        self.state.committed({source_id: envelope.seq_nr for source_id, envelope in last.items()})
        return await right(self, session, last, handled, work)

    return _method(Transactions, "_try", tries)


@_mutant("a gap is no reason to wait")
def _gaps_are_accepted() -> AbstractContextManager[Any]:
    return _verdicts({Verdict.GAP: Verdict.ACCEPTED, Verdict.UNKNOWN_SOURCE: Verdict.ACCEPTED})


@_mutant("a gap is taken for a duplicate")
def _gaps_are_duplicates() -> AbstractContextManager[Any]:
    return _verdicts({Verdict.GAP: Verdict.DUPLICATE, Verdict.UNKNOWN_SOURCE: Verdict.DUPLICATE})


def _verdicts(wrong: Mapping[Verdict, Verdict]) -> AbstractContextManager[Any]:
    right = BatchVerdicts.validate

    def validate(self: BatchVerdicts, source_id: str, seq_nr: int, db_timestamp: datetime) -> Verdict:
        verdict = right(self, source_id, seq_nr, db_timestamp)
        return wrong.get(verdict, verdict)

    return _method(BatchVerdicts, "validate", validate)


@_mutant("what came while a source was parked is forgotten")
def _unparks_at_once() -> AbstractContextManager[Any]:
    async def unpark(self: Parking, session: Any, parked: Any) -> None:
        await self._transactions.unpark(session, parked.source_id)

    return _method(Parking, "_unpark", unpark)


@contextmanager
def _no_generations() -> Iterator[None]:
    def same(*_: Any) -> bool:
        return True

    with (
        _method(Generation, "follows", same),
        mock.patch.object(offsets, "same_generation", same),
        mock.patch.object(holding, "same_generation", same),
    ):
        yield


@_mutant("progress is not compared before it is stored")
@contextmanager
def _no_compare_and_set() -> Iterator[None]:
    with _no_generations(), _replaced("save_offsets_v1", _without_count()):
        yield


@_mutant("ranges are merged at the newest horizon")
def _merges_at_the_newest() -> AbstractContextManager[Any]:
    right = holding.new_range

    def new_range(number: int, first: int, last: int, **columns: Any) -> Any:
        row = right(number, first, last, **columns)
        return {**row, "horizon": columns["handled_until"]} if "handled_until" in columns else row

    return mock.patch.object(holding, "new_range", new_range)


@_mutant("a transaction may be silent for as long as it likes")
def _no_silence() -> AbstractContextManager[Any]:
    right = BaseSession.begin

    async def begin(self: BaseSession, mark: str | None = None, idle: timedelta | None = None) -> None:
        await right(self, mark, idle if mark else None)

    return _method(BaseSession, "begin", begin)


@_mutant("the lock of an append ends before its commit is visible")
def _unlocks_first() -> AbstractContextManager[Any]:
    async def commit(self: Backend) -> None:
        transaction, self._committing = self.transaction, True
        self.server.end(transaction)
        await self.breathe()
        self.server.make_visible(transaction)
        self._ended()

    return _method(Backend, "_commit", commit)


def _without_count() -> Any:
    right = statements._FUNCTIONS["save_offsets_v1"]

    async def save(db: Backend, number: int, min_slice: int, *rest: Any) -> Any:
        """Whatever count the caller remembers, it is taken for what is stored."""
        told = list(rest)
        for row in db.select(
            "projection_ranges", lambda r: (r["projection_id"], r["min_slice"]) == (number, min_slice)
        ):
            told[2] = row["commits"]
        return await right(db, number, min_slice, *told)

    return save


@contextmanager
def _replaced(function: str, model: Any) -> Iterator[None]:
    with (
        mock.patch.dict(statements._FUNCTIONS, {function: model}),
        mock.patch.dict(statements._parsed, clear=True),
    ):
        yield
