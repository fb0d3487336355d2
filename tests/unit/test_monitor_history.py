"""What the monitor keeps to draw: bounded in time and in number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import offsets
from journal import EntityTypes
from projections.monitoring.overview import ProjectionLine, Waits
from projections.monitoring.web.history import LagHistory

START = datetime(2026, 1, 1, tzinfo=UTC)


def look(history: LagHistory, seconds: float, handled: int = 0, projection_id: int = 1) -> None:
    alike = offsets.RangesAlike(True, False, False, 1, handled, ["w"])
    summary = offsets.ProjectionSummary(
        projection_id, "p", EntityTypes(("plane",)), 1, "live", False, None, [alike]
    )
    line = ProjectionLine(summary, Waits(2.5, 7, 0), internal=False)
    history.add(START + timedelta(seconds=seconds), [line])


def test_throughput_is_what_was_handled_since_the_point_before() -> None:
    history = LagHistory()
    for seconds, handled in [(0, 1000), (1, 1200), (3, 1300)]:
        look(history, seconds, handled)

    assert [point.rate for point in history.points(1)] == [0, 200, 50]


def test_a_projection_that_is_made_anew_has_no_throughput_below_zero() -> None:
    history = LagHistory()
    look(history, 0, 1000)
    look(history, 1, 5)

    assert [point.rate for point in history.points(1)] == [0, 0]


def test_points_are_kept_for_ten_minutes() -> None:
    history = LagHistory()
    for seconds in range(0, 1000, 10):
        look(history, seconds)

    assert [history.points(1)[0].at, history.points(1)[-1].at] == [
        START + timedelta(seconds=390),
        START + timedelta(seconds=990),
    ]


def test_no_more_than_so_many_points_are_kept() -> None:
    history = LagHistory(points=100)
    for number in range(1000):
        look(history, number / 10)

    assert len(history.points(1)) == 100


def test_a_clock_that_was_set_back_begins_anew() -> None:
    history = LagHistory()
    look(history, 100, 50)
    look(history, 10, 60)

    assert [(point.handled, point.rate) for point in history.points(1)] == [(60, 0)]


def test_a_projection_that_is_gone_is_forgotten() -> None:
    history = LagHistory()
    look(history, 0, projection_id=1)
    look(history, 1, projection_id=2)

    assert (history.points(1), len(history.points(2))) == ((), 1)
