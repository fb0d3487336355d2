"""What holds a projection back, in words, with the slices and the command."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from journal import ALL_SLICES, BEGINNING, EntityTypes, SliceRange, slice_ranges
from projections.monitoring import OpenWriter, ProjectionLag, RangeLag
from projections.monitoring.holding_back import Cause, HeldBack, held_back
from projections.monitoring.lag import State
from projections.monitoring.lag_elsewhere import Unhandled

AT = datetime(2026, 1, 1, tzinfo=UTC)
OPEN = OpenWriter(123, "importer", AT, 300.0)


def part(slices: SliceRange, state: State = State.RUNNING, **more: Any) -> RangeLag:
    values: dict[str, Any] = {
        "lag": 0.0, "backlog": 0, "handled_at": None, "handled": 0, "horizon": BEGINNING, "owner": "w",
        "alive": state is not State.UNCLAIMED, "assigned_to": "w", "epoch": 1, "parked": 0, "failures": 0,
        "error": None, "restarts_at": None,
    }  # fmt: skip
    return RangeLag(slices=slices, state=state, **(values | more))


def held(
    *ranges: RangeLag, writers: Sequence[OpenWriter] = (), rate: float = 0.0, paused: bool = False
) -> list[HeldBack]:
    parked_at = AT - timedelta(minutes=42)
    unhandled = {0: Unhandled(0.0, 0, 1, parked_at)} if any(one.parked for one in ranges) else {}
    found = ProjectionLag(1, "p", EntityTypes(("plane",)), paused, [*ranges], unhandled, by_slice=False)
    return held_back(found, writers, AT, rate)


QUARTERS = slice_ranges(4)


def test_nothing_holds_back_what_is_all_handled() -> None:
    assert held(*map(part, QUARTERS)) == []


def test_pausing_is_all_there_is_to_say_of_one_that_is_paused() -> None:
    found = held(*(part(one, State.PAUSED, backlog=7, failures=3) for one in QUARTERS), paused=True)

    assert found == [
        HeldBack(Cause.PAUSED, "Somebody has paused it.", [ALL_SLICES], ["projections", "resume", "p"])
    ]


def test_ranges_without_a_worker_are_told_as_few_runs_of_slices() -> None:
    first, second, third, fourth = QUARTERS
    (found,) = held(
        part(first, State.UNCLAIMED, owner=None),
        part(second, State.UNCLAIMED, owner="gone:1:x"),
        part(third),
        part(fourth, State.UNCLAIMED, owner=None),
    )

    assert found.text == (
        "No worker holds 3 of 4 ranges (slices 0-511, 768-1023). Their owner is gone: gone:1:x."
    )
    assert found.slices == [SliceRange(0, 511), SliceRange(768, 1023)]
    assert found.command == ["projections", "worker", "MODULE"]
    assert held(part(ALL_SLICES, State.UNCLAIMED, owner=None))[0].text == "No worker holds its range."


def test_failures_with_the_same_error_are_one() -> None:
    first, second, third, fourth = QUARTERS
    soon = {"failures": 3, "restarts_at": AT + timedelta(seconds=90)}
    found = held(
        part(first, State.RESTARTING, error="no column", **soon),
        part(second, State.RESTARTING, error="disk full", failures=1),
        part(third, State.RESTARTING, error="no column", **soon),
        part(fourth),
    )

    assert [(one.cause, one.text) for one in found] == [
        (
            Cause.FAILED,
            "2 of 4 ranges (slices 0-255, 512-767): failed 3 times in a row, starts again in 1 min 30 s: no column",
        ),
        (Cause.FAILED, "1 of 4 ranges (slices 256-511): failed once, is to start again: disk full"),
    ]


def test_parked_sources_are_told_with_how_long_they_wait() -> None:
    first, *others = QUARTERS
    (found,) = held(part(first, State.PARKED, parked=16), *map(part, others))

    assert found.text == (
        "16 sources wait at an event that could not be handled, one for 42 min 0 s. All other sources go on."
    )
    assert (found.slices, found.command) == ([first], ["projections", "parked", "list", "p"])


def test_ranges_that_move_are_told() -> None:
    first, *others = QUARTERS
    (found,) = held(part(first, assigned_to="another"), *map(part, others))

    assert found.text == "Another worker takes over 1 of 4 ranges (slices 0-255) after the current batch."


def test_a_transaction_that_stays_open_is_named_and_a_short_one_is_not() -> None:
    prepared, short = OpenWriter(None, None, None, 7200.0), OpenWriter(5, "app", AT, 0.5)
    found = held(part(ALL_SLICES), writers=[prepared, OPEN, short])

    assert [one.text.split(". ")[0] for one in found] == [
        "A transaction that has appended is open for 2 h 0 min: unnamed, a prepared transaction",
        "A transaction that has appended is open for 5 min 0 s: importer, process 123",
    ]


def test_one_that_works_says_how_long_it_takes() -> None:
    busy = part(ALL_SLICES, backlog=1200, lag=9.0)

    assert held(busy, rate=100.0, writers=[OPEN])[-1].text == (
        "Nothing: 1,200 events are to be handled, about 12 s at the current rate."
    )
    assert held(part(ALL_SLICES, backlog=1))[0].text == "Nothing: 1 event is to be handled."
