"""Everything that a monitor shows, in one look at the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

import offsets
from journal import Journals, Session
from projections.extras import registered
from projections.monitoring.lag import ProjectionLag, projection_lags
from projections.monitoring.registration import GROUP, Observed, Vacancy
from projections.monitoring.vacancies import vacancies

_NOW = "SELECT clock_timestamp() AS at, current_database()::text AS database"
_CAPTURE_PROBLEMS = "SELECT coalesce(sum(cardinality(t.problems)), 0) FROM projections.captured_tables AS t"
_WRITERS = "SELECT pid, application_name, started_at, age FROM projections.writers_in_flight_v1()"


class OpenWriter(NamedTuple):
    """A transaction that has appended and not ended: no horizon passes what it may still commit."""

    pid: int | None
    """None for a prepared transaction."""
    application_name: str | None
    """None also where the role that asks may not see it (see ``pg_read_all_stats``)."""
    started_at: datetime | None
    age: float
    """Seconds since it began; 0 where that is not known."""


class Snapshot(NamedTuple):
    """How all projections are doing, and whatever else was asked for."""

    at: datetime
    """The database's time."""
    projections: list[ProjectionLag]
    workers: list[offsets.WorkerStatus]
    writers: list[OpenWriter]
    """Transactions that hold the horizon back, the oldest first."""
    database: str = ""
    """The database's name."""
    others: Sequence[Observed] = ()
    """What was seen of all that other packages have registered, such as groups of consumers and webhooks."""
    unreached: Mapping[str, str] = MappingProxyType({})
    """Projections, or parts of them, that are left out because their journal cannot be reached, and why."""
    vacancies: Sequence[Vacancy] = ()
    """Roles that are needed and that nobody has."""
    capture_problems: int = 0
    """Why writes of captured tables have no events, or are refused: how many such reasons."""


async def snapshot(
    session: Session,
    names: Sequence[str] | None = None,
    *,
    by_slice: bool = False,
    everything: bool = False,
    journal: Journals = None,
    partly: bool = False,
) -> Snapshot:
    """
    How projections are doing, and who runs them.

    Args:
        session: Where; inside or outside of a transaction.
        names: Which projections; None for all that have run on this database.
        by_slice: Whether to look at each slice of the projections, or at their ranges alone.
        everything: Whether to look at groups of consumers and at webhooks, too, and for roles that nobody has.
        journal: What some of the projections read, if that is in another database.
        partly: Whether to leave out those whose journal cannot be reached, where others can; else that is an error.

    Raises:
        NotFound: One of them has not run.
        InvalidValue: One of them reads a journal in another database that was not passed.
    """
    at, name = await time_and_name(session)
    unreached: dict[str, str] = {}
    left_out = unreached if partly else None
    others = [await one.look(session) for one in registered(GROUP)] if everything else ()
    return Snapshot(
        at,
        await projection_lags(session, names, by_slice=by_slice, journal=journal, unreached=left_out),
        await offsets.workers(session),
        await open_writers(session),
        name,
        others,
        unreached,
        await vacancies(session, others=others) if everything else (),
        int(await session.fetchval(_CAPTURE_PROBLEMS)) if everything else 0,
    )


async def time_and_name(session: Session) -> tuple[datetime, str]:
    """The database's time, and its name."""
    (row,) = await session.fetch(_NOW)
    return row["at"], row["database"]


async def open_writers(session: Session) -> list[OpenWriter]:
    """The transactions that have appended and not ended, the oldest first."""
    return [
        OpenWriter(
            row["pid"], row["application_name"], row["started_at"],
            0.0 if row["age"] is None else max(row["age"].total_seconds(), 0.0),
        )
        for row in await session.fetch(_WRITERS)
    ]  # fmt: skip
