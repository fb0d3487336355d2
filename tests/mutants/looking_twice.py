"""Bugs of the reader that looks twice, for databases that do not tell what is in flight."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from journal import IntervalBacktracking, Position
from journal.backtracking import WritersPoll
from tests.mutants.layers import Pytest
from tests.mutants.mutant import mutant
from tests.mutants.seeding import method

_FILE = "journal/interval_backtracking.py"
_PRIMARY = Pytest("tests/models/test_explorer_interval.py::test_nothing_is_lost[1-4-1-primary]")
_STANDBY = Pytest("tests/models/test_explorer_interval.py::test_nothing_is_lost[1-4-1-standby]")
_TIES = Pytest("tests/models/test_explorer_interval.py::test_nothing_is_lost[2-3-0-standby]")
_HISTORIES = Pytest(
    "tests/property/test_backtracking_model.py::test_long_histories_keep_the_invariants_of_interval_backtracking[some]"
)
_ON_A_STANDBY = Pytest(
    "tests/property/test_backtracking_model.py::test_long_histories_keep_the_invariants_on_a_standby[some]"
)


def _told(**instead: Any) -> AbstractContextManager[Any]:
    """Takes something else out of each poll."""
    right = IntervalBacktracking.polled

    def polled(self: IntervalBacktracking, poll: WritersPoll) -> None:
        right(self, replace(poll, **instead))

    return method(IntervalBacktracking, "polled", polled)


@mutant(
    "interval-never-reads-again",
    "what is old enough counts as read twice without being read again",
    f"{_FILE}: IntervalBacktracking._read_again",
    _PRIMARY,
    _HISTORIES,
)
def _never_again() -> AbstractContextManager[Any]:
    def read_again(self: IntervalBacktracking, until: datetime) -> None:
        self._second = max(self._second, Position.before(until))

    return method(IntervalBacktracking, "_read_again", read_again)


@mutant(
    "interval-horizon-is-its-position",
    "the horizon is the last time that was read",
    f"{_FILE}: IntervalBacktracking.horizon",
    _PRIMARY,
    _HISTORIES,
)
def _horizon_is_the_position() -> AbstractContextManager[Any]:
    return method(IntervalBacktracking, "horizon", property(lambda self: self._position.db_timestamp))


@mutant(
    "interval-windows-of-one-page",
    "a second reading that a page cuts short counts as done",
    f"{_FILE}: IntervalBacktracking.keys_read",
    _HISTORIES,
)
def _windows_of_one_page() -> AbstractContextManager[Any]:
    right = IntervalBacktracking.keys_read

    def keys_read(self: IntervalBacktracking, last: Position | None, *, full: bool) -> None:
        right(self, last, full=False)

    return method(IntervalBacktracking, "keys_read", keys_read)


@mutant(
    "interval-trusts-the-clock-of-a-standby",
    "the time on a standby is its clock, not what it has replayed",
    f"{_FILE}: IntervalBacktracking._take_the_time",
    _STANDBY,
    _ON_A_STANDBY,
)
def _trusts_the_clock() -> AbstractContextManager[Any]:
    return _told(replayed_until=None)


@mutant(
    "interval-waits-for-the-time-to-move",
    "what was committed last on a standby is read again only after a later commit",
    f"{_FILE}: IntervalBacktracking._take_the_time",
    _TIES,
    _ON_A_STANDBY,
)
def _waits_for_the_time() -> AbstractContextManager[Any]:
    right = IntervalBacktracking._take_the_time

    def take_the_time(self: IntervalBacktracking, poll: WritersPoll) -> timedelta:
        right(self, poll)
        return timedelta(0)

    return method(IntervalBacktracking, "_take_the_time", take_the_time)


@mutant(
    "interval-takes-commits-of-one-time-for-one",
    "of two commits of one time that a standby replays apart, the second one is not looked for",
    f"{_FILE}: IntervalBacktracking.polled",
    _TIES,
)
def _one_commit_for_each_time() -> AbstractContextManager[Any]:
    return _told(replayed=0)
