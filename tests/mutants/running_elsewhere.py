"""Bugs of journals that are in another database, which the simulation finds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any
from unittest import mock

from journal import SliceReader, WriterLockBacktracking, latest_seq_nr
from journal.backtracking import WritersPoll
from offsets import lost_events
from projections.running import range_runner
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method
from tests.simulation.postgres import foreign, statements
from tests.simulation.postgres.backend import Backend

APART = Simulation(100, arrangement="apart")
FOREIGN = Simulation(200, arrangement="foreign")


@mutant(
    "journal-is-not-compared",
    "a journal that went back in time is not compared with what is handled",
    "projections/running/range_runner.py: RangeRunner._fit_journal",
    APART,
    FOREIGN,
)
def _no_comparison() -> AbstractContextManager[Any]:
    async def fits(*_args: Any, **_options: Any) -> tuple[bool, tuple[()]]:
        return False, ()

    return mock.patch.object(range_runner, "fit_journal", fits)


@mutant(
    "lost-events-by-number-alone",
    "what a journal has lost is known by numbers alone, which are given again",
    "offsets/lost_events.py: ahead_in",
    Simulation(200, arrangement="apart"),
    FOREIGN,
)
def _numbers_alone() -> AbstractContextManager[Any]:
    right = lost_events.ahead_in

    async def ahead_in(journal: Any, reader: Any, offsets: Any, handled_until: Any) -> Any:
        return [
            one
            for one in await right(journal, reader, offsets, handled_until)
            if await latest_seq_nr(journal, one.source_id, queries=reader.queries) < one.handled
        ]

    return mock.patch.object(lost_events, "ahead_in", ahead_in)


@mutant(
    "predecessors-are-older",
    "the event before is looked for among older ones, also where another system stamps them",
    "journal/reader.py: SliceReader.predecessors",
    FOREIGN,
    Pytest(
        "tests/integration/foreign/test_attacks.py::"
        "test_an_event_whose_transaction_began_before_the_event_before_it_was_written_waits_for_that_one"
    ),
)
def _times_ascend() -> AbstractContextManager[Any]:
    async def predecessors(self: SliceReader, session: Any, keys: Any, since: Any, until: Any) -> Any:
        columns = [key[0] for key in keys], [key[1] for key in keys]
        rows = await session.fetch(self.queries.predecessors, *columns, since, until)
        return {(row["source_id"], row["seq_nr"]): row["db_timestamp"] for row in rows}

    return method(SliceReader, "predecessors", predecessors)


@mutant(
    "writers-are-known-by-their-locks",
    "a transaction that stamps with its start is known once it has written",
    "sql/foreign/poll_transaction_start.sql",
    FOREIGN,
)
@contextmanager
def _known_by_locks() -> Iterator[None]:
    def has_written(self: Backend) -> bool:
        return self._transaction is not None and bool(self._transaction.changed)

    right = WriterLockBacktracking._bound_of

    def bound_of(
        self: WriterLockBacktracking, holder: str, poll: WritersPoll, gone: Sequence[datetime]
    ) -> datetime:
        return right(self, holder, replace(poll, starts={}), gone)

    with (
        method(Backend, "waits", True),
        method(Backend, "shows_its_transaction", property(has_written)),
        method(WriterLockBacktracking, "_bound_of", bound_of),
    ):
        yield


@mutant(
    "prepared-are-not-looked-at",
    "prepared transactions that stamp with their start are not looked at",
    "sql/foreign/poll_transaction_start.sql",
    FOREIGN,
)
@contextmanager
def _no_prepared() -> Iterator[None]:
    poll = foreign.poll_writers

    async def without(db: Backend, *args: Any) -> Any:
        (row,) = await poll(db, *args)
        shown = zip(row["holders"], row["holder_starts"], strict=True)
        kept = [(holder, start) for holder, start in shown if not holder.startswith("p")]
        names, starts = [one for one, _ in kept], [start for _, start in kept]
        return [{**row, "holders": names, "holder_starts": starts}]

    text = next(text for text, model in statements._STATEMENTS.items() if model is poll)
    with (
        mock.patch.dict(statements._STATEMENTS, {text: without}),
        mock.patch.dict(statements._parsed, clear=True),
    ):
        yield
