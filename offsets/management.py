"""Projections from outside of their workers: looked at, paused, rescaled, moved to another offset, and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, TypeAlias

from journal import BEGINNING, EntityTypes, NotFound, Row, Session, slice_ranges
from journal.suggestions import did_you_mean
from offsets.errors import WrongJournal, own_errors
from offsets.leases import RangeStatus, read_ranges

_FIND = """
SELECT projection_id, name, entity_types, paused, evicted_before, mode, journal FROM projections.projections
WHERE $1::text[] IS NULL OR name = ANY($1) ORDER BY name
"""
_NAMES = "SELECT name FROM projections.projections ORDER BY name"
_REMOVE = "SELECT * FROM projections._remove_projection_v1($1, $2)"
_SET_PAUSED = "UPDATE projections.projections SET paused = $2 WHERE name = $1"
_SET_RANGES = "SELECT projections._set_ranges_v1($1, $2)"
_SET_OFFSET = "SELECT projections._set_offset_v1($1, $2)"


_SET_MODE = "SELECT projections._set_mode_v1($1, $2)"

Mode: TypeAlias = Literal["live", "inline"]
"""Who handles events: workers, or those who append them in their transactions, and workers what these leave."""


class ProjectionStatus(NamedTuple):
    """A projection as the database has it."""

    projection_id: int
    name: str
    entity_types: EntityTypes
    paused: bool
    evicted_before: datetime
    ranges: list[RangeStatus]
    mode: Mode = "live"
    journal: str | None = None
    """The name of the journal that it reads, where that is in another database."""


class Removed(NamedTuple):
    """What has gone with a projection."""

    ranges: int
    sources: int
    """Sources whose offsets were stored."""
    parked: int
    rebuilds: int


async def names(session: Session) -> list[str]:
    """The projections that have run on this database."""
    return [row["name"] for row in await session.fetch(_NAMES)]


async def status(session: Session, name: str) -> ProjectionStatus:
    """
    Where a projection stands.

    Raises:
        NotFound: None of this name has run; the error lists those that have.
    """
    (found,) = await statuses(session, [name])
    return found


async def statuses(session: Session, wanted: Sequence[str] | None = None) -> list[ProjectionStatus]:
    """
    Where projections stand; in two statements, however many they are.

    Args:
        session: A session on the database, in a transaction or not.
        wanted: Their names; None for all, by name.

    Raises:
        NotFound: None of one of the names has run; the error lists those that have.
    """
    rows = await _rows(session, wanted)
    ranges = await read_ranges(session, [row["projection_id"] for row in rows.values()])
    return [_status(rows[name], ranges) for name in (rows if wanted is None else wanted)]


async def entity_types_of(session: Session, wanted: Sequence[str]) -> dict[str, EntityTypes]:
    """
    What projections read, by their names.

    Raises:
        NotFound: None of one of the names has run; the error lists those that have.
    """
    return {
        name: EntityTypes.stored(row["entity_types"]) for name, row in (await _rows(session, wanted)).items()
    }


async def _rows(session: Session, wanted: Sequence[str] | None) -> dict[str, Row]:
    rows = {row["name"]: row for row in await session.fetch(_FIND, None if wanted is None else list(wanted))}
    for name in wanted or ():
        if name not in rows:
            known = await names(session)
            raise NotFound(
                f"no projection {name!r} has run on this database; known: {', '.join(known) or 'none'}"
                f"{did_you_mean(name, known)}",
                "unknown_projection",
            )
    return rows


def _status(row: Row, ranges: Mapping[int, list[RangeStatus]]) -> ProjectionStatus:
    number, name, types, paused, evicted_before, mode, journal = row.values()
    return ProjectionStatus(
        number, name, EntityTypes.stored(types), paused, evicted_before, ranges[number], mode, journal
    )


async def set_paused(session: Session, name: str, *, paused: bool) -> None:
    """Pause or resume; workers take it in with their next heartbeat, about a second later."""
    await status(session, name)
    await session.execute(_SET_PAUSED, name, paused)


async def set_mode(session: Session, name: str, mode: Mode) -> None:
    """
    Make a projection inline or live, while it runs: nothing is lost, and nothing is handled twice.

    It waits for transactions that are just handling events inline. Batches in flight roll back, and the workers go on
    within about a heartbeat.

    Args:
        session: A session on the database, in a transaction or not.
        name: The projection.
        mode: ``inline`` to have :class:`projections.Inline` handle what it appends; ``live`` to leave all to workers.

    Raises:
        NotFound: None of this name has run.
        InvalidValue: It is to be inline, and reads a journal in another database.
    """
    found = await status(session, name)
    if mode == "inline" and found.journal is not None:
        raise WrongJournal(
            f"projection {name!r} reads journal {found.journal!r} of another database: a transaction that appends "
            "there cannot handle here"
        )
    await session.execute(_SET_MODE, found.projection_id, mode)


async def rescale(session: Session, name: str, ranges: int) -> None:
    """
    Cut the slices of a projection into another number of ranges, while it runs.

    Progress is kept. Batches in flight roll back, and the workers share the new ranges within about a heartbeat.

    Args:
        session: Outside a transaction.
        name: The projection.
        ranges: 1 to 1024.

    Raises:
        NotFound: None of this name has run.
        InvalidValue: ``ranges`` is not 1 to 1024.
    """
    cut = slice_ranges(ranges)
    found = await status(session, name)
    await session.execute(_SET_RANGES, found.projection_id, [one.min_slice for one in cut])


async def remove(session: Session, name: str, *, force: bool = False) -> Removed:
    """
    Remove a projection with its ranges, offsets and parked sources; its read model is left as it is.

    Args:
        session: A session on the database, in a transaction or not.
        name: The projection.
        force: Also while workers run it: they say so, and handle nothing more of it until they are started again.

    Raises:
        NotFound: None of this name has run.
        ProjectionRuns: Workers run it.
        DatabaseError: A rebuild of it is unfinished, or the tables that one has replaced are still there.
    """
    await status(session, name)
    with own_errors():
        row = await session.fetchrow(_REMOVE, name, force)
    return Removed(0, 0, 0, 0) if row is None else Removed(*row.values())


async def set_offset(session: Session, name: str, start: datetime) -> None:
    """
    Make a projection start at a time: events from then on are handled (again), older ones never.

    Its read model is not touched. Running workers lose their claims and begin again.

    Raises:
        NotFound: None of this name has run.
        ValueError: The time has no zone.
    """
    if start.tzinfo is None:
        raise ValueError(
            f"the time {start} has no zone: write it with one, e.g. {start.replace(tzinfo=UTC).isoformat()}"
        )
    found = await status(session, name)
    await session.execute(_SET_OFFSET, found.projection_id, max(start, BEGINNING))


async def clear_offset(session: Session, name: str) -> None:
    """Make a projection start at the beginning; see :func:`set_offset`."""
    await set_offset(session, name, BEGINNING)
