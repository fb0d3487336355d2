"""Bugs of the reader of slices, in the state machines that say what to read next."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from typing import Any

from journal import Position, WriterLockBacktracking
from journal.backtracking import WritersPoll
from tests.mutants.layers import Pytest, Simulation
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

HISTORIES = Pytest(
    "tests/property/test_backtracking_model.py::test_long_histories_keep_the_invariants[some-one type-steady]"
)
EXPLORER = Pytest("tests/models/test_explorer.py::test_the_machine_and_its_model_come_to_the_same[1-2-0-1]")
PREPARED = Pytest("tests/models/test_explorer.py::test_the_machine_and_its_model_come_to_the_same[1-2-0-1]")


@mutant(
    "reader-windows-for-known-writers",
    "a window does not reach back to the poll before",
    "journal/backtracking.py: WriterLockBacktracking.polled",
    HISTORIES,
    EXPLORER,
    Simulation(),
)
def _windows_for_known_holders() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking.polled

    def polled(self: WriterLockBacktracking, poll: WritersPoll) -> None:
        known_ones_went = not poll.holders.issuperset(self._bounds)
        right(self, poll)
        if self._window is not None and not known_ones_went:
            self._window_is_read()

    return method(WriterLockBacktracking, "polled", polled)


@mutant(
    "reader-windows-of-one-page",
    "a window that a page cuts short counts as read",
    "journal/backtracking.py: WriterLockBacktracking.keys_read",
    HISTORIES,
    Simulation(10),
)
def _windows_of_one_page() -> AbstractContextManager[Any]:
    def keys_read(self: WriterLockBacktracking, last: Position | None, *, full: bool) -> None:
        self._window_is_read()

    return method(WriterLockBacktracking, "keys_read", keys_read)


@mutant(
    "reader-forgets-writers",
    "who is in flight is forgotten",
    "journal/backtracking.py: WriterLockBacktracking._window_is_read",
    HISTORIES,
    EXPLORER,
    Simulation(20),
)
def _no_bounds() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking._window_is_read

    def window_is_read(self: WriterLockBacktracking) -> None:
        right(self)
        self._bounds = {}

    return method(WriterLockBacktracking, "_window_is_read", window_is_read)


@mutant(
    "reader-horizon-is-its-position",
    "the horizon is the last time that was read",
    "journal/backtracking.py: WriterLockBacktracking.horizon",
    HISTORIES,
    EXPLORER,
    Simulation(10),
)
def _horizon_is_the_position() -> AbstractContextManager[Any]:
    def horizon(self: WriterLockBacktracking) -> datetime:
        return max(self._position.db_timestamp, self._start)

    return method(WriterLockBacktracking, "horizon", property(horizon))


@mutant(
    "reader-trusts-a-new-name",
    "a prepared transaction is taken for one that has just begun",
    "journal/backtracking.py: WriterLockBacktracking._bound_of",
    PREPARED,
    Simulation(),
)
def _trusts_a_new_name() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking._bound_of

    def bound_of(
        self: WriterLockBacktracking, holder: str, poll: WritersPoll, gone: Sequence[datetime]
    ) -> datetime:
        return right(self, holder, poll, [])

    return method(WriterLockBacktracking, "_bound_of", bound_of)


@mutant(
    "reader-bounds-a-new-name-once",
    "a transaction that a poll shows under two names, its own and as prepared, loses the bound of the first with it",
    "journal/backtracking.py: WriterLockBacktracking._bound_of",
    PREPARED,
)
def _bounds_a_new_name_once() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking._bound_of

    def bound_of(
        self: WriterLockBacktracking, holder: str, poll: WritersPoll, gone: Sequence[datetime]
    ) -> datetime:
        return self._bounds.get(holder) or right(self, holder, poll, gone)

    return method(WriterLockBacktracking, "_bound_of", bound_of)


@mutant(
    "reader-bound-is-the-poll",
    "a writer that a poll is the first to see gets the time of that poll as its bound",
    "journal/backtracking.py: WriterLockBacktracking._bound_of",
    HISTORIES,
    EXPLORER,
)
def _bound_is_the_poll() -> AbstractContextManager[Any]:
    def bound_of(
        self: WriterLockBacktracking, holder: str, poll: WritersPoll, gone: Sequence[datetime]
    ) -> datetime:
        return self._bounds.get(holder, poll.polled_at)

    return method(WriterLockBacktracking, "_bound_of", bound_of)


@mutant(
    "reader-never-looks-back",
    "no window is ever read",
    "journal/backtracking.py: WriterLockBacktracking.polled",
    HISTORIES,
    EXPLORER,
    Simulation(20),
)
def _never_looks_back() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking.polled

    def polled(self: WriterLockBacktracking, poll: WritersPoll) -> None:
        right(self, poll)
        self._window_is_read()

    return method(WriterLockBacktracking, "polled", polled)


@mutant(
    "reader-overlooks-imports",
    "an import of history counts without being read",
    "journal/backtracking.py: WriterLockBacktracking.polled",
    HISTORIES,
    Simulation(200),
)
def _overlooks_imports() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking.polled

    def polled(self: WriterLockBacktracking, poll: WritersPoll) -> None:
        self.import_id = max([self.import_id, *poll.imports])
        right(self, replace(poll, imports={}))

    return method(WriterLockBacktracking, "polled", polled)


@mutant(
    "reader-ignores-the-time-gone-by",
    "a step of the clock is known only by what two polls show, not when it was",
    "journal/backtracking.py: WriterLockBacktracking._look_for_a_clock_that_went_back",
    Pytest(
        "tests/property/test_backtracking_model.py"
        "::test_long_histories_keep_the_invariants[some-every type-large steps]"
    ),
)
def _ignores_the_time_gone_by() -> AbstractContextManager[Any]:
    right = WriterLockBacktracking.polled

    def polled(self: WriterLockBacktracking, poll: WritersPoll) -> None:
        right(self, replace(poll, asked_at=0.0, told_at=0.0))

    return method(WriterLockBacktracking, "polled", polled)
