"""
Whether a process is alive and ready, and whether a lag has lasted.

A probe is asked again and again; what it remembers is bounded.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from projections.monitoring.registration import Place
from projections.monitoring.snapshot import Snapshot

SLOW_TURN = timedelta(seconds=5)
"""An event loop that takes longer for one turn hardly works."""

_MOST_CHECKS = 16


class Lagging(NamedTuple):
    """A range whose lag has been above a limit for too long."""

    place: Place
    lag: timedelta
    since: datetime
    """Since when it has been above the limit, as far as is known."""


@dataclass(slots=True)
class _Above:
    since: datetime
    seen_at: datetime


class LagCheck:
    """
    Whether a lag has been above a limit for longer than a time, judged by samples.

    Lag is the age of an event that waits, so a lag of ten minutes was above a limit of one for the last nine, sampled
    or not: a stuck range is seen by the first sample. Only of a lag that hovers just above the limit do samples have to
    tell, and those further apart than ``longest_gap`` tell nothing of the time between.

    Args:
        above: The limit.
        lasting: For how long a lag may be above it.
        longest_gap: How far apart samples may be.
    """

    def __init__(
        self, above: timedelta, lasting: timedelta, longest_gap: timedelta = timedelta(minutes=1)
    ) -> None:
        self._above = above
        self._lasting = lasting
        self._longest_gap = longest_gap
        self._since: dict[Place, _Above] = {}

    def observe(self, at: datetime, lags: Mapping[Place, timedelta]) -> list[Lagging]:
        """
        Take a sample, and say which ranges have been lagging for too long.

        Args:
            at: The database's time of the sample.
            lags: The lag of every range; one that is not among them any more is forgotten.
        """
        self._since = {
            place: self._judge(self._since.get(place), at, lag)
            for place, lag in lags.items()
            if lag > self._above
        }
        return [
            Lagging(place, lags[place], found.since)
            for place, found in self._since.items()
            if at - found.since > self._lasting
        ]

    def _judge(self, before: _Above | None, at: datetime, lag: timedelta) -> _Above:
        certain = at - (lag - self._above)
        if before is None:
            return _Above(certain, at)
        goes_on = certain <= before.seen_at or at - before.seen_at <= self._longest_gap
        return _Above(min(before.since, certain) if goes_on else certain, at)


class LagChecks:
    """The checks that have been asked for, by limit and time; of too many, those asked for longest ago are dropped."""

    def __init__(self) -> None:
        self._checks: OrderedDict[tuple[timedelta, timedelta], LagCheck] = OrderedDict()

    def observe(
        self, above: timedelta, lasting: timedelta, at: datetime, lags: Mapping[Place, timedelta]
    ) -> list[Lagging]:
        """Take a sample for one check; see :meth:`LagCheck.observe`."""
        check = self._checks.get((above, lasting)) or LagCheck(above, lasting)
        self._checks[above, lasting] = check
        self._checks.move_to_end((above, lasting))
        if len(self._checks) > _MOST_CHECKS:
            self._checks.popitem(last=False)
        return check.observe(at, lags)


def lags_of(snapshot: Snapshot) -> dict[Place, timedelta]:
    """The lag of every range of projections, and of all else that was seen."""
    lags = {
        Place("projection", one.name, part.slices): timedelta(seconds=part.lag)
        for one in snapshot.projections
        for part in one.ranges
    }
    return lags | {place: lag for other in snapshot.others for place, lag in other.lags().items()}


async def time_of_a_turn() -> timedelta:
    """How long the event loop takes to come around: all that wants to run gets its turn meanwhile."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    await asyncio.sleep(0)
    return timedelta(seconds=loop.time() - begun)
