"""
Bugs of running workers. Most change the code of the library; those of SQL functions that the simulation finds change
their models in it, as a change of the function would.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from typing import Any
from unittest import mock

from journal import Generation, WriterLockBacktracking
from journal.database import Fault
from journal.database.base import BaseSession
from offsets import Verdict
from offsets.deduplication import BatchVerdicts, OffsetState
from offsets.store import OffsetStore
from projections.errors import of_all
from projections.running import blame, inline
from projections.running.parking import Parking
from projections.running.suspects import Suspects
from projections.running.transactions import Transactions
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method, sql
from tests.simulation.postgres import holding, offsets, statements
from tests.simulation.postgres.backend import Backend


@mutant(
    "memory-before-the-commit",
    "memory moves before the commit",
    "projections/running/transactions.py: Transactions.commit",
    Simulation(20),
)
def _memory_before_commit() -> AbstractContextManager[Any]:
    right = Transactions.commit

    async def commit(self: Transactions, session: Any, handled: Any, *work: Any, **until: Any) -> None:
        self.state.committed({envelope.source_id: envelope.seq_nr for envelope in handled})
        await right(self, session, handled, *work, **until)

    return method(Transactions, "commit", commit)


@mutant(
    "offsets-left-out-stay-stored",
    "an offset that need not be stored any more is left as it was",
    "offsets/store.py: OffsetStore.forget_in_tx",
    Simulation(60),
)
def _offsets_stay() -> AbstractContextManager[Any]:
    async def forget(self: OffsetStore, session: Any, source_ids: Any) -> None:
        pass

    return method(OffsetStore, "forget_in_tx", forget)


@mutant(
    "offsets-left-out-stay-in-memory",
    "memory keeps numbers of sources whose offsets are not stored",
    "offsets/deduplication.py: OffsetState.evicted",
    Simulation(60),
)
def _offsets_stay_in_memory() -> AbstractContextManager[Any]:
    def evicted(self: OffsetState, source_ids: Any, before: datetime) -> None:
        self.evicted_before = before

    return method(OffsetState, "evicted", evicted)


@mutant(
    "offsets-left-out-of-what-may-appear",
    "offsets are left out of a time at which an open transaction may yet have events",
    "journal/backtracking.py: WriterLockBacktracking.settled",
    Simulation(60),
)
def _settled_with_writers() -> AbstractContextManager[Any]:
    def settled(self: WriterLockBacktracking) -> datetime:
        return self._polled_at

    return method(WriterLockBacktracking, "settled", property(settled))


@mutant(
    "offsets-left-out-beside-an-import",
    "offsets are left out though an import was not read that may have events of that time",
    "offsets/store.py: OffsetStore.evict_in_tx",
    Pytest(
        "tests/integration/offsets/test_old_events.py"
        "::test_an_import_that_commits_while_a_batch_is_open_is_handled"
    ),
)
def _evicts_beside_imports() -> AbstractContextManager[Any]:
    right = OffsetStore.evict_in_tx

    async def evict(self: OffsetStore, session: Any, until: datetime, _import_id: int, retention: Any) -> Any:
        return await right(self, session, until, 2**62, retention)

    return method(OffsetStore, "evict_in_tx", evict)


@mutant(
    "gaps-are-accepted",
    "a gap is not waited for",
    "offsets/deduplication.py: BatchVerdicts.validate",
    Simulation(),
)
def _gaps_are_accepted() -> AbstractContextManager[Any]:
    return _verdicts({Verdict.GAP: Verdict.ACCEPTED, Verdict.UNKNOWN_SOURCE: Verdict.ACCEPTED})


@mutant(
    "gaps-are-duplicates",
    "a gap is taken for a duplicate",
    "offsets/deduplication.py: BatchVerdicts.validate",
    Simulation(),
)
def _gaps_are_duplicates() -> AbstractContextManager[Any]:
    return _verdicts({Verdict.GAP: Verdict.DUPLICATE, Verdict.UNKNOWN_SOURCE: Verdict.DUPLICATE})


def _verdicts(wrong: Mapping[Verdict, Verdict]) -> AbstractContextManager[Any]:
    right = BatchVerdicts.validate

    def validate(self: BatchVerdicts, source_id: str, seq_nr: int, db_timestamp: datetime) -> Verdict:
        verdict = right(self, source_id, seq_nr, db_timestamp)
        return wrong.get(verdict, verdict)

    return method(BatchVerdicts, "validate", validate)


@mutant(
    "unparks-at-once",
    "what came while a source was parked is forgotten",
    "projections/running/parking.py: Parking._unpark",
    Simulation(),
)
def _unparks_at_once() -> AbstractContextManager[Any]:
    async def unpark(self: Parking, session: Any, parked: Any) -> None:
        await self._transactions.unpark(session, parked.source_id)

    return method(Parking, "_unpark", unpark)


@contextmanager
def _no_generations() -> Iterator[None]:
    def same(*_: Any) -> bool:
        return True

    with (
        method(Generation, "follows", same),
        mock.patch.object(offsets, "same_generation", same),
        mock.patch.object(holding, "same_generation", same),
    ):
        yield


@mutant(
    "progress-is-not-compared",
    "progress is not compared before it is stored",
    "sql/functions/offsets/save_offsets_v1.sql",
    Pytest(
        "tests/integration/offsets/test_compare_and_set.py"
        "::test_nothing_is_stored_on_a_range_that_is_not_as_it_was_left"
    ),
)
@contextmanager
def _no_compare_and_set() -> Iterator[None]:
    with (
        _no_generations(),
        _replaced("save_offsets_v1", _without_count()),
        sql("functions/offsets/save_offsets_v1.sql", " AND r.commits = p_commits", ""),
    ):
        yield


@mutant(
    "ranges-merge-at-the-newest",
    "ranges are merged at the newest horizon",
    "sql/functions/holding/_set_ranges_v1.sql",
    Simulation(),
    Pytest("tests/integration/offsets/test_rescale.py::test_progress_is_kept_when_ranges_split_and_merge"),
)
@contextmanager
def _merges_at_the_newest() -> Iterator[None]:
    right = holding.new_range

    def new_range(number: int, first: int, last: int, **columns: Any) -> Any:
        row = right(number, first, last, **columns)
        return {**row, "horizon": columns["handled_until"]} if "handled_until" in columns else row

    with (
        method(holding, "new_range", new_range),
        sql(
            "functions/holding/_set_ranges_v1.sql",
            "        min(c.horizon), min(c.import_id)",
            "        max(c.handled_until), min(c.import_id)",
        ),
    ):
        yield


@mutant(
    "transactions-may-be-silent",
    "a transaction may be silent for as long as it likes",
    "journal/database/base.py: BaseSession.begin",
    Simulation(),
)
def _no_silence() -> AbstractContextManager[Any]:
    right = BaseSession.begin

    async def begin(self: BaseSession, mark: str | None = None, idle: timedelta | None = None) -> None:
        await right(self, mark, idle if mark else None)

    return method(BaseSession, "begin", begin)


@mutant(
    "locks-end-before-the-commit",
    "the lock of an append ends before its commit is visible, as if PostgreSQL were another",
    "tests/simulation/postgres/backend.py: Backend._commit",
    Simulation(),
)
def _unlocks_first() -> AbstractContextManager[Any]:
    async def commit(self: Backend) -> None:
        transaction, self._committing = self.transaction, True
        self.server.end(transaction)
        await asyncio.sleep(0.02 * self.server.choices.random())
        self.server.make_visible(transaction)
        self._ended()

    return method(Backend, "_commit", commit)


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


@mutant(
    "held-back-without-its-source",
    "later events of a source are handled while one before them is held back",
    "projections/running/suspects.py: Suspects.left",
    Simulation(150),
)
def _held_back_alone() -> AbstractContextManager[Any]:
    return method(Suspects, "left", lambda _, envelopes: envelopes)


@mutant(
    "blame-by-the-code-alone",
    "an error of another database counts as one of the range's own",
    "projections/running/blame.py: _is_of",
    Pytest(
        "tests/integration/running/test_blame.py::test_a_time_out_of_another_database_is_the_fault_of_the_event"
    ),
)
def _by_code() -> AbstractContextManager[Any]:
    async def is_of(_session: Any, _error: BaseException) -> bool:
        return True

    return method(blame, "_is_of", is_of)


@mutant(
    "one-event-of-all",
    "a failure that may be the fault of all counts against no event, whatever passes next to it",
    "projections/running/suspects.py: Suspects.hold",
    Pytest(
        "tests/integration/database/test_whose_fault.py"
        "::test_what_fails_one_event_alone_counts_against_it_and_is_tried_again_by_itself"
    ),
)
def _of_all() -> AbstractContextManager[Any]:
    right = Suspects.hold

    def hold(self: Suspects, envelope: Any, failure: Any) -> bool:
        if failure.fault is Fault.PROJECTION:
            raise of_all(failure)
        return right(self, envelope, failure)

    return method(Suspects, "hold", hold)


@mutant(
    "text-of-an-error-outside-the-guard",
    "an error is asked for its text where what it raises is not caught",
    "projections/errors.py: text_of",
    Pytest(
        "tests/integration/running/test_blame.py::test_an_inline_append_fails_with_its_event_and_the_next_one_does_not"
    ),
)
def _text_outside() -> AbstractContextManager[Any]:
    return method(inline, "text_of", str)


@mutant(
    "a-slow-server-parks-all",
    "an event that takes too long is parked although no other passes",
    "projections/running/suspects.py: Suspects.check",
    Pytest(
        "tests/integration/running/test_slow_events.py"
        "::test_a_server_that_is_slow_for_all_stops_the_range_and_none_is_parked"
    ),
)
def _unchecked() -> AbstractContextManager[Any]:
    return method(Suspects, "check", lambda *_: None)
