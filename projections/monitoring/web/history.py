"""What the page draws as lines: lag and throughput of the last minutes, kept in the monitor's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from projections.monitoring.overview import ProjectionLine

_LENGTH = timedelta(minutes=10)
_POINTS = 600
_SMOOTH = timedelta(seconds=5)


class Point(NamedTuple):
    """A projection at a time."""

    at: datetime
    lag: float
    """Seconds."""
    handled: int
    rate: float
    """Events handled a second since the point before."""


class LagHistory:
    """
    The points of each projection, bounded in time and in number.

    Args:
        length: The time span that is kept.
        points: The largest number for each projection; more are thinned by dropping the oldest.
    """

    def __init__(self, length: timedelta = _LENGTH, points: int = _POINTS) -> None:
        self._length = length
        self._points = points
        self._kept: dict[int, deque[Point]] = {}

    def add(self, at: datetime, projections: Iterable[ProjectionLine]) -> None:
        """Take in what was seen at a time; projections that are no longer there are forgotten."""
        self._kept = {found.projection_id: self._with(found, at) for found in projections}

    def points(self, projection_id: int) -> Sequence[Point]:
        """The points of a projection, oldest first."""
        return self._kept.get(projection_id, ())

    def rate(self, projection_id: int) -> float:
        """Events a second that a projection has handled in the last seconds: batches are committed in bursts."""
        points = self.points(projection_id)
        last = [point.rate for point in points if point.at > points[-1].at - _SMOOTH]
        return sum(last) / len(last) if last else 0.0

    def _with(self, found: ProjectionLine, at: datetime) -> deque[Point]:
        points = self._kept.get(found.projection_id) or deque(maxlen=self._points)
        before = points[-1] if points else None
        if before is not None and at <= before.at:  # the database's clock was set back
            points.clear()
            before = None
        rate = 0.0
        if before is not None:
            handled = max(found.handled - before.handled, 0)
            rate = handled / (at - before.at).total_seconds()
        points.append(Point(at, found.lag, found.handled, rate))
        while points[0].at < at - self._length:
            points.popleft()
        return points
