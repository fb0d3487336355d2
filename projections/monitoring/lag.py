"""
The lag and the backlog of a projection, by slice and by range.

Computed by the database (``sql/functions/monitoring/slice_lag_v1.sql``) from what it has stored: exact also when no
worker runs, and the workers do nothing for it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import offsets
from journal import EntityTypes, Journals, JournalUnavailable, Log, Session, SliceRange
from projections.monitoring.lag_elsewhere import Unhandled, unhandled_elsewhere

_SLICE_LAG = (
    "SELECT projection_id, slice, lag, backlog, parked, parked_since FROM projections.slice_lag_v1($1, $2)"
)


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


def state_of(*, paused: bool, alive: bool, failing: bool, parked: bool) -> State:
    """The state of a slice or a range: decided here alone, for the commands, the metrics and the monitor."""
    if paused:
        return State.PAUSED
    if not alive:
        return State.UNCLAIMED
    if failing:
        return State.RESTARTING
    return State.PARKED if parked else State.RUNNING


class RangesInStates:
    """Ranges of a projection, each in a state."""

    @property
    def ranges_in(self) -> Mapping[State, int]:
        """How many ranges are in each state; at least one is in one."""
        raise NotImplementedError

    @property
    def state(self) -> State:
        """Of the states of its ranges the first in the order of :class:`State`."""
        return next(one for one in State if self.ranges_in.get(one))

    @property
    def states(self) -> str:
        """The state of all ranges, or how many are in each, that of the projection first: ``2 parked, 6 running``."""
        counts = [(one, self.ranges_in[one]) for one in State if self.ranges_in.get(one)]
        return counts[0][0] if len(counts) == 1 else ", ".join(f"{count} {state}" for state, count in counts)


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


_NOTHING = Unhandled(0.0, 0, 0, None)


class LagOfRanges:
    """How far ranges are behind together."""

    ranges: list[RangeLag]

    @property
    def lag(self) -> float:
        """Age of the oldest event that is not handled, in seconds; 0 when there is none."""
        return max((part.lag for part in self.ranges), default=0.0)

    @property
    def backlog(self) -> int:
        """Events that are not handled."""
        return sum(part.backlog for part in self.ranges)

    @property
    def parked(self) -> int:
        """Sources that wait for a decision."""
        return sum(part.parked for part in self.ranges)


@dataclass(frozen=True)
class ProjectionLag(LagOfRanges, RangesInStates):
    """How far a projection is behind, or of one that reads several journals, the part that reads one of them."""

    projection_id: int
    name: str
    """Of a part, ``NAME@JOURNAL``."""
    entity_types: EntityTypes
    paused: bool
    ranges: list[RangeLag]
    unhandled: Mapping[int, Unhandled]
    """By slice, of those that have something; else by range, under its first slice."""
    by_slice: bool
    """Whether each slice was looked at, or each range as a whole."""
    journal: str | None = None
    """The journal that it reads, where that is in another database."""
    version: int = 1
    mode: offsets.Mode = "live"
    passed_over: int = 0
    """Events of its journal that no projection gets, because their position or their slice is none."""

    @property
    def note(self) -> str | None:
        """For people, what numbers do not show: that events of its journal are passed over."""
        if not self.passed_over:
            return None
        return f"projection {self.name!r}: journal {self.journal!r}: {Log.passed_over_said(self.passed_over)}"

    @cached_property
    def slices(self) -> list[SliceLag]:
        """
        All 1,024, in order; made when they are asked for.

        Raises:
            ValueError: Ranges were looked at as a whole.
        """
        if not self.by_slice:
            raise ValueError("the slices were not looked at: pass by_slice=True")
        return [
            _slice_lag(number, part, self.unhandled.get(number, _NOTHING), paused=self.paused)
            for part in self.ranges
            for number in range(part.slices.min_slice, part.slices.max_slice + 1)
        ]

    @property
    def ranges_in(self) -> Mapping[State, int]:
        """How many ranges are in each state."""
        return Counter(part.state for part in self.ranges)

    @property
    def parked_since(self) -> datetime | None:
        """When the source that has waited longest was parked."""
        times = (one.parked_since for one in self.unhandled.values())
        return min((time for time in times if time is not None), default=None)

    @property
    def handled(self) -> int:
        """Events handled since the projection was made."""
        return sum(part.handled for part in self.ranges)


async def projection_lag(session: Session, name: str, *, journal: Journals = None) -> ProjectionLag:
    """
    How far a projection is behind.

    Costs about as much as counting the backlog: see docs/decisions/lag-from-the-database.md.

    Args:
        session: A session on the database of the projection.
        name: The projection, or a part of it, ``NAME@JOURNAL``.
        journal: The journal that it reads, where that is in another database; or several.

    Raises:
        NotFound: None of this name has run; the error lists those that have.
        InvalidValue: It reads several journals, and no part of it was named; or a journal in another database that was
            not passed.
    """
    (found,) = await projection_lags(session, [(await offsets.status(session, name)).name], journal=journal)
    return found


async def projection_lags(
    session: Session,
    names: Sequence[str] | None = None,
    *,
    by_slice: bool = True,
    journal: Journals = None,
    unreached: dict[str, str] | None = None,
) -> list[ProjectionLag]:
    """
    How far projections are behind; in three statements, however many they are.

    One that reads several journals has a lag for each.

    Args:
        session: A session on the database, inside or outside a transaction.
        names: Of the projections, or of parts of them; None for all, by name.
        by_slice: Whether to look at each slice; ranges alone cost half as much, and less to fetch.
        journal: What some of them read, one or several, if that is in another database; each of those takes some
            statements more.
        unreached: Is called with those whose journal cannot be reached, and why; they are left out, unless it is
            all. None: this is an error.

    Raises:
        NotFound: None of one of the names has run; the error lists those that have.
        InvalidValue: One of them reads a journal in another database that was not passed.
        JournalUnavailable: A journal cannot be reached.
    """
    statuses = await offsets.statuses(session, names)
    unhandled: dict[int, dict[int, Unhandled]] = {status.projection_id: {} for status in statuses}
    here = [status.projection_id for status in statuses if status.journal is None]
    for row in await session.fetch(_SLICE_LAG, here, by_slice):
        number, slice_number, lag, backlog, parked, parked_since = row.values()
        seconds = 0.0 if lag is None else lag.total_seconds()
        unhandled[number][slice_number] = Unhandled(seconds, backlog, parked, parked_since)
    passed_over: dict[str | None, int] = {None: 0}
    away: JournalUnavailable | None = None
    for status in statuses:
        if status.journal is not None:
            log = offsets.named_log(status, journal)
            try:
                found = await unhandled_elsewhere(session, status, log, by_slice=by_slice)
                if status.journal not in passed_over:
                    passed_over[status.journal] = await log.at_primary.passed_over()
            except JournalUnavailable as error:
                if unreached is None:
                    raise
                away = error
                unreached[status.name] = str(error)
                del unhandled[status.projection_id]
            else:
                unhandled[status.projection_id] = found
    if away is not None and not unhandled:
        raise away
    return [
        _projection_lag(
            status,
            unhandled[status.projection_id],
            by_slice=by_slice,
            passed_over=passed_over[status.journal],
        )
        for status in statuses
        if status.projection_id in unhandled
    ]


def _projection_lag(
    status: offsets.ProjectionStatus, unhandled: Mapping[int, Unhandled], *, by_slice: bool, passed_over: int
) -> ProjectionLag:
    firsts = [part.slices.min_slice for part in status.ranges]
    within: list[list[Unhandled]] = [[] for _ in firsts]
    for number, one in unhandled.items():
        within[bisect_right(firsts, number) - 1].append(one)
    return ProjectionLag(
        status.projection_id,
        status.name,
        status.entity_types,
        status.paused,
        [
            _range_lag(part, found, paused=status.paused)
            for part, found in zip(status.ranges, within, strict=True)
        ],
        unhandled,
        by_slice,
        status.journal,
        status.version,
        status.mode,
        passed_over,
    )


def _slice_lag(number: int, part: RangeLag, found: Unhandled, *, paused: bool) -> SliceLag:
    return SliceLag(
        slice=number,
        lag=found.lag,
        backlog=found.backlog,
        handled_at=part.handled_at,
        owner=part.owner,
        epoch=part.epoch,
        state=_state(part, found.parked, paused=paused),
        parked=found.parked,
    )


def _range_lag(part: offsets.RangeStatus, within: Sequence[Unhandled], *, paused: bool) -> RangeLag:
    parked = sum(one.parked for one in within)
    same = part._asdict().keys() & RangeLag._fields
    return RangeLag(
        **{name: getattr(part, name) for name in same},
        lag=max((one.lag for one in within), default=0.0),
        backlog=sum(one.backlog for one in within),
        state=_state(part, parked, paused=paused),
        parked=parked,
    )


def _state(part: offsets.RangeStatus | RangeLag, parked: int, *, paused: bool) -> State:
    return state_of(paused=paused, alive=part.alive, failing=part.failures > 0, parked=parked > 0)
