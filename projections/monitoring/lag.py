"""
The lag and the backlog of a projection, by slice and by range.

Computed by the database from what it has stored: exact also when no worker runs, and the workers do nothing for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import offsets
from journal import NUMBER_OF_SLICES, Row, Session, SliceRange

_SLICE_LAG = "SELECT slice, lag, backlog, parked, parked_since FROM projections.slice_lag_v1($1)"


class State(StrEnum):
    """What a slice or a range does; of several that hold, the first."""

    PAUSED = "paused"
    """Somebody has paused the projection."""
    UNCLAIMED = "unclaimed"
    """No worker that is alive holds it."""
    RESTARTING = "restarting"
    """It has failed, and starts again after a pause."""
    PARKED = "parked"
    """It runs, and sources of it wait for somebody to decide."""
    RUNNING = "running"


class SliceLag(NamedTuple):
    """How far one slice is behind."""

    slice: int
    lag: float
    """Age of the oldest event that is not handled, in seconds; 0 when there is none."""
    backlog: int
    """Events that are not handled; those of parked sources are not among them."""
    handled_at: datetime | None
    """When the last batch of its range was committed."""
    owner: str | None
    """Who holds its range, alive or not."""
    epoch: int
    state: State
    parked: int
    """Sources that wait for a decision."""


class RangeLag(NamedTuple):
    """How far one range is behind."""

    slices: SliceRange
    lag: float
    """The largest of its slices, in seconds."""
    backlog: int
    handled_at: datetime | None
    """When its last batch was committed."""
    handled: int
    """Events handled since the projection was made; a cut keeps the sum over all ranges."""
    horizon: datetime
    """Everything before this time is handled, but for imports that have not been read yet."""
    owner: str | None
    alive: bool
    """Whether it is owned, and the owner's lease runs."""
    assigned_to: str | None
    epoch: int
    state: State
    parked: int
    failures: int
    """Failures in a row."""
    error: str | None
    """The last one's error."""
    restarts_at: datetime | None


class ProjectionLag(NamedTuple):
    """How far a projection is behind."""

    projection_id: int
    name: str
    entity_type: str
    paused: bool
    ranges: list[RangeLag]
    slices: list[SliceLag]
    """All 1,024, in order."""
    parked_since: datetime | None
    """When the source that has waited longest was parked."""

    @property
    def lag(self) -> float:
        """Age of the oldest event that is not handled, in seconds; 0 when there is none."""
        return max((part.lag for part in self.ranges), default=0.0)

    @property
    def backlog(self) -> int:
        """Events that are not handled."""
        return sum(part.backlog for part in self.ranges)

    @property
    def handled(self) -> int:
        """Events handled since the projection was made."""
        return sum(part.handled for part in self.ranges)

    @property
    def parked(self) -> int:
        """Sources that wait for a decision."""
        return sum(part.parked for part in self.ranges)


async def projection_lag(session: Session, name: str) -> ProjectionLag:
    """
    How far a projection is behind.

    Costs about as much as counting the backlog: see docs/decisions/lag-from-the-database.md.

    Args:
        session: Where; inside or outside of a transaction.
        name: The projection.

    Raises:
        UnknownProjection: None of this name has run; the error lists those that have.
    """
    status = await offsets.status(session, name)
    rows = {row["slice"]: row for row in await session.fetch(_SLICE_LAG, status.projection_id)}
    slices = [
        _slice_lag(number, part, rows.get(number), paused=status.paused)
        for part in status.ranges
        for number in range(part.slices.min_slice, part.slices.max_slice + 1)
    ]
    assert len(slices) == NUMBER_OF_SLICES  # noqa: S101 - the ranges tile them
    return ProjectionLag(
        status.projection_id,
        name,
        status.entity_type,
        status.paused,
        [_range_lag(part, slices, paused=status.paused) for part in status.ranges],
        slices,
        _parked_since(rows),
    )


def _slice_lag(number: int, part: offsets.RangeStatus, row: Row | None, *, paused: bool) -> SliceLag:
    lag = 0.0 if row is None or row["lag"] is None else row["lag"].total_seconds()
    parked = 0 if row is None else row["parked"]
    return SliceLag(
        slice=number,
        lag=lag,
        backlog=0 if row is None else row["backlog"],
        handled_at=part.handled_at,
        owner=part.owner,
        epoch=part.epoch,
        state=_state(part, parked, paused=paused),
        parked=parked,
    )


def _range_lag(part: offsets.RangeStatus, slices: list[SliceLag], *, paused: bool) -> RangeLag:
    within = slices[part.slices.min_slice : part.slices.max_slice + 1]
    parked = sum(one.parked for one in within)
    return RangeLag(
        slices=part.slices,
        lag=max(one.lag for one in within),
        backlog=sum(one.backlog for one in within),
        handled_at=part.handled_at,
        handled=part.handled,
        horizon=part.horizon,
        owner=part.owner,
        alive=part.alive,
        assigned_to=part.assigned_to,
        epoch=part.epoch,
        state=_state(part, parked, paused=paused),
        parked=parked,
        failures=part.failures,
        error=part.error,
        restarts_at=part.restarts_at,
    )


def _state(part: offsets.RangeStatus, parked: int, *, paused: bool) -> State:
    if paused:
        return State.PAUSED
    if not part.alive:
        return State.UNCLAIMED
    if part.failures:
        return State.RESTARTING
    return State.PARKED if parked else State.RUNNING


def _parked_since(rows: Mapping[int, Row]) -> datetime | None:
    return min(
        (row["parked_since"] for row in rows.values() if row["parked_since"] is not None), default=None
    )
