"""What the page draws as lines: lag and throughput of the last minutes, kept in the monitor's memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from projections.monitoring import ProjectionLag, Snapshot

_LENGTH = timedelta(minutes=10)
_POINTS = 600


class Point(NamedTuple):
    """A projection at a time."""

    at: datetime
    lag: float
    """Seconds."""
    backlog: int
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

    def add(self, snapshot: Snapshot) -> None:
        """Take in what was seen; projections that are no longer there are forgotten."""
        self._kept = {found.projection_id: self._with(found, snapshot.at) for found in snapshot.projections}

    def points(self, projection_id: int) -> Sequence[Point]:
        """The points of a projection, oldest first."""
        return self._kept.get(projection_id, ())

    def items(self) -> Iterable[tuple[int, Sequence[Point]]]:
        """All projections' points, by the projections' ids."""
        return self._kept.items()

    def _with(self, found: ProjectionLag, at: datetime) -> deque[Point]:
        points = self._kept.get(found.projection_id) or deque(maxlen=self._points)
        before = points[-1] if points else None
        if before is not None and at <= before.at:  # the database's clock was set back
            points.clear()
            before = None
        rate = 0.0
        if before is not None:
            handled = max(found.handled - before.handled, 0)
            rate = handled / (at - before.at).total_seconds()
        points.append(Point(at, found.lag, found.backlog, found.handled, rate))
        while points[0].at < at - self._length:
            points.popleft()
        return points
