"""
What a monitor shows of all projections at once: one line of each, however many ranges they have.

Lag, backlog and states are those of :mod:`projections.monitoring.lag`; here the database sums them up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

import offsets
from journal import Journals, JournalUnavailable, Session
from projections.extras import registered
from projections.monitoring.lag import RangesInStates, State, projection_lags, state_of
from projections.monitoring.registration import GROUP, Monitored, Observed, Vacancy
from projections.monitoring.snapshot import OpenWriter, open_writers, time_and_name
from projections.monitoring.under_way import JournalRead, UnfinishedRebuild, journals_read, rebuilds_under_way
from projections.monitoring.vacancies import vacancies

LAGS_FROM = 60.0
"""Seconds of lag from which on a projection that runs needs somebody's attention, too."""
_LAGS = """
SELECT l.projection_id, max(l.lag) AS lag, sum(l.backlog)::bigint AS backlog, sum(l.parked)::bigint AS parked
FROM projections.slice_lag_v1($1, FALSE) AS l GROUP BY l.projection_id
"""


class Waits(NamedTuple):
    """What a projection has not handled."""

    lag: float = 0.0
    backlog: int = 0
    parked: int = 0


@dataclass(frozen=True)
class ProjectionLine(RangesInStates):
    """A projection in one line."""

    summary: offsets.ProjectionSummary
    waits: Waits
    internal: bool
    """Whether a part of this library runs it, such as the matching of subscriptions."""

    @property
    def projection_id(self) -> int:
        """Its number."""
        return self.summary.projection_id

    @property
    def lag(self) -> float:
        """Age of the oldest event that is not handled, in seconds; 0 when there is none."""
        return self.waits.lag

    @property
    def handled(self) -> int:
        """Events handled since the projection was made."""
        return sum(one.handled for one in self.summary.ranges)

    @property
    def ranges_in(self) -> Mapping[State, int]:
        """How many ranges are in each state."""
        counts: Counter[State] = Counter()
        for one in self.summary.ranges:
            state = state_of(
                paused=self.summary.paused, alive=one.alive, failing=one.failing, parked=one.parked
            )
            counts[state] += one.ranges
        return counts

    @property
    def owners(self) -> Sequence[str]:
        """The workers that hold its ranges and are alive."""
        return sorted({owner for one in self.summary.ranges for owner in one.owners})

    @property
    def in_trouble(self) -> bool:
        """Whether somebody should look: it neither runs nor was paused, or is far behind though it runs."""
        return self.state not in {State.PAUSED, State.RUNNING} or (
            self.state is State.RUNNING and self.lag >= LAGS_FROM
        )


class Unreached(NamedTuple):
    """A projection whose lag nobody knows: its journal cannot be reached, or was not named to the monitor."""

    name: str
    journal: str | None
    reason: str


class Overview(NamedTuple):
    """How all projections are doing, who runs them, and all else that is monitored."""

    at: datetime
    """The database's time."""
    database: str
    projections: Sequence[ProjectionLine]
    unreached: Sequence[Unreached]
    workers: Sequence[offsets.WorkerStatus]
    writers: Sequence[OpenWriter]
    """Transactions that hold the horizon back, the oldest first."""
    others: Sequence[Observed]
    """What was seen of all that other packages have registered."""
    rebuilds: Sequence[UnfinishedRebuild] = ()
    journals: Sequence[JournalRead] = ()
    vacancies: Sequence[Vacancy] = ()
    """Roles that are needed and that nobody has."""


async def overview(session: Session, *, journal: Journals = None) -> Overview:
    """
    How all projections are doing.

    The number of statements does not grow with that of projections, those aside whose journal is in another database,
    and what they answer does not grow with the number of ranges.

    Args:
        session: On the database of the projections, inside or outside of a transaction.
        journal: What some of the projections read, if that is in another database.

    """
    at, name = await time_and_name(session)
    monitored: Sequence[Monitored] = registered(GROUP)
    internal = tuple(name for one in monitored for name in one.internal)
    found = await offsets.summaries(session)
    waits, unreached = await _waits(session, found, journal)
    others = [await one.look(session) for one in monitored]
    return Overview(
        at,
        name,
        [
            ProjectionLine(one, waits[one.projection_id], one.name.startswith(internal))
            for one in found
            if one.projection_id in waits
        ],
        unreached,
        await offsets.workers(session),
        await open_writers(session),
        others,
        await rebuilds_under_way(session),
        await journals_read(session, found),
        await vacancies(session, found, others),
    )


async def _waits(
    session: Session, found: Sequence[offsets.ProjectionSummary], journal: Journals
) -> tuple[dict[int, Waits], list[Unreached]]:
    waits = {one.projection_id: Waits() for one in found if one.journal is None}
    for row in await session.fetch(_LAGS, list(waits)):
        lag = 0.0 if row["lag"] is None else row["lag"].total_seconds()
        waits[row["projection_id"]] = Waits(lag, row["backlog"], row["parked"])
    unreached = []
    for one in found:
        if one.journal is None:
            continue
        try:
            (lag_of,) = await projection_lags(session, [one.name], by_slice=False, journal=journal)
        except (JournalUnavailable, offsets.WrongJournal) as error:
            unreached.append(Unreached(one.name, one.journal, str(error)))
        else:
            waits[one.projection_id] = Waits(lag_of.lag, lag_of.backlog, lag_of.parked)
    return waits, unreached
