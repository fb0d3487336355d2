"""Projections from outside of their workers: looked at, paused, rescaled, moved to another offset, and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from operator import add
from typing import Literal, NamedTuple, TypeAlias

from journal import (
    BEGINNING,
    EntityTypes,
    InvalidValue,
    Journals,
    Log,
    NotAllowed,
    NotFound,
    Row,
    Session,
    as_logs,
    slice_ranges,
)
from journal.suggestions import did_you_mean
from offsets.errors import WrongJournal, own_errors
from offsets.leases import RangeStatus, read_ranges

# A part of a projection that reads several journals is found by NAME@JOURNAL, and all of them by NAME.
_FIND = """
SELECT
    p.name AS projection, p.name || '@' || coalesce(p.journal, 'journal') AS part, p.projection_id,
    projections._part_name_v1(p.name, p.journal) AS name, p.entity_types, p.paused, p.evicted_before, p.mode,
    p.journal, p.version
FROM projections.projections AS p
WHERE $1::text[] IS NULL OR p.name = ANY($1) OR p.name || '@' || coalesce(p.journal, 'journal') = ANY($1)
ORDER BY p.name, p.projection_id
"""
_READS = "SELECT name, journal, entity_types FROM projections.projections WHERE name = ANY($1)"
_NAMES = """
SELECT projections._part_name_v1(p.name, p.journal) AS name FROM projections.projections AS p
ORDER BY p.name, p.projection_id
"""
_REMOVE = "SELECT * FROM projections._remove_projection_v1($1, $2)"
_SET_PAUSED = "UPDATE projections.projections SET paused = $2 WHERE projection_id = ANY($1)"
_SET_RANGES = "SELECT projections._set_ranges_v1($1, $2)"
_SET_OFFSET = "SELECT projections._set_offset_v1($1, $2)"


_MISSING_TABLES = """
SELECT m.table_name, p.name
FROM projections.read_models AS m INNER JOIN projections.projections AS p USING (projection_id, version)
WHERE m.projection_id = ANY($1) AND NOT EXISTS (
    SELECT FROM pg_catalog.pg_class AS c INNER JOIN pg_catalog.pg_namespace AS n ON c.relnamespace = n.oid
    WHERE m.table_name IN (c.relname, n.nspname || '.' || c.relname)
) ORDER BY m.name
"""
_SET_MODE = "SELECT projections._set_mode_v1($1, $2)"

Mode: TypeAlias = Literal["live", "inline"]
"""Who handles events: workers, or those who append them in their transactions, and workers what these leave."""


class ProjectionStatus(NamedTuple):
    """A projection as the database has it, or of one that reads several journals the part that reads one of them."""

    projection_id: int
    name: str
    """Of a part, ``NAME@JOURNAL``; the journal that is in the same database is called ``journal``."""
    entity_types: EntityTypes
    paused: bool
    evicted_before: datetime
    ranges: list[RangeStatus]
    mode: Mode = "live"
    journal: str | None = None
    """The name of the journal that it reads, where that is in another database."""
    version: int = 1
    """Of its code: workers of another version wait until a rebuild by theirs is swapped in."""


class Removed(NamedTuple):
    """What has gone with a projection."""

    ranges: int
    sources: int
    """Sources whose offsets were stored."""
    parked: int
    rebuilds: int


async def names(session: Session) -> list[str]:
    """The projections that have run on this database; of one that reads several journals, its parts."""
    return [row["name"] for row in await session.fetch(_NAMES)]


async def known(session: Session, wanted: Sequence[str]) -> list[str]:
    """Of projections, or parts of them, the names of those that have run; the others are left out."""
    return list(dict.fromkeys(row["name"] for row in await session.fetch(_FIND, list(wanted))))


async def status(session: Session, name: str) -> ProjectionStatus:
    """
    Where a projection stands.

    Raises:
        NotFound: None of this name has run; the error lists those that have.
        InvalidValue: It reads several journals: the part that is meant is to be named.
    """
    found = await statuses(session, [name])
    if len(found) > 1:
        raise InvalidValue(
            f"projection {name!r} reads several journals: name one part of it, {' or '.join(one.name for one in found)}"
        )
    return found[0]


async def statuses(session: Session, wanted: Sequence[str] | None = None) -> list[ProjectionStatus]:
    """
    Where projections stand; in two statements, however many they are. One that reads several journals has one for each.

    Args:
        session: A session on the database, in a transaction or not.
        wanted: Their names, or those of parts (``NAME@JOURNAL``); None for all, by name.

    Raises:
        NotFound: None of one of the names has run; the error lists those that have.
    """
    rows = await _rows(session, wanted)
    ranges = await read_ranges(session, [row["projection_id"] for row in rows])
    return [_status(row, ranges) for row in rows]


async def entity_types_of(
    session: Session, wanted: Sequence[str], journal: str | None = None
) -> dict[str, EntityTypes]:
    """
    What projections read of a journal, by their names.

    Args:
        session: A session on the database, in a transaction or not.
        wanted: Their names.
        journal: That of the journal, where it is in another database.

    Raises:
        NotFound: None of one of the names has run; the error lists those that have.
        WrongJournal: One of them reads another journal, or is a part of a projection.
    """
    rows = await session.fetch(_READS, list(wanted))
    found = {
        row["name"]: EntityTypes.stored(row["entity_types"]) for row in rows if row["journal"] == journal
    }
    for name in wanted:
        if name not in found:
            read = sorted(journal_said(row["journal"]) for row in rows if row["name"] == name)
            if not read:
                (part, *_) = await _rows(session, [name])
                raise WrongJournal(
                    f"{name!r} is a part of projection {part['projection']!r}: name that, and the journal"
                )
            raise WrongJournal(f"projection {name!r} reads {' and '.join(read)}, not {journal_said(journal)}")
    return found


def journal_said(name: str | None) -> str:
    """A journal, by the name that is stored with a projection, as messages have it."""
    return "the journal of its own database" if name is None else f"journal {name!r} of another database"


def named_log(status: ProjectionStatus, journals: Journals) -> Log:
    """
    Of logs that were passed, the one that a projection, or a part of it, reads.

    Raises:
        WrongJournal: It is not among them.
    """
    for log in as_logs(journals):
        if log.name == status.journal:
            return log
    raise WrongJournal(
        f"projection {status.name!r} reads journal {status.journal!r} of another database: name that, too "
        "(--journal, or PROJECTIONS_JOURNAL)"
    )


async def refuse_several(session: Session, name: str, what: str) -> None:
    """
    Refuse what can be done with one journal only.

    Args:
        session: A session on the database, in a transaction or not.
        name: The projection.
        what: What it is, to follow "and" in a sentence.

    Raises:
        WrongJournal: The projection reads several.
    """
    parts = await session.fetch(_FIND, [name])
    if len(parts) > 1:
        read = ", ".join(row["name"] for row in parts)
        raise WrongJournal(
            f"projection {name!r} reads several journals ({read}), and {what}. To build its read model again, stop its "
            f"workers, empty its tables, run `projections offsets clear {name}` (for a new version of its code "
            f"`projections remove {name}`), and start the workers again"
        )


async def _rows(session: Session, wanted: Sequence[str] | None) -> Sequence[Row]:
    rows = await session.fetch(_FIND, None if wanted is None else list(wanted))
    if wanted is None:
        return rows
    found: dict[int, Row] = {}
    for name in wanted:
        those = [row for row in rows if name in {row["projection"], row["part"]}]
        if not those:
            known = await names(session)
            raise NotFound(
                f"no projection {name!r} has run on this database; known: {', '.join(known) or 'none'}"
                f"{did_you_mean(name, known)}",
                "unknown_projection",
            )
        found |= {row["projection_id"]: row for row in those}
    return list(found.values())


def _status(row: Row, ranges: Mapping[int, list[RangeStatus]]) -> ProjectionStatus:
    _, _, number, name, types, paused, evicted_before, mode, *rest = row.values()
    return ProjectionStatus(
        number, name, EntityTypes.stored(types), paused, evicted_before, ranges[number], mode, *rest
    )


async def set_paused(session: Session, name: str, *, paused: bool) -> None:
    """Pause or resume; workers take it in with their next heartbeat, about a second later."""
    rows = await _rows(session, [name])
    await session.execute(_SET_PAUSED, [row["projection_id"] for row in rows], paused)


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
        NotAllowed: It is to be inline, and a table of its read models is not there: each append would fail.
    """
    parts = await _rows(session, [name])
    # Of several, those that read other databases stay live.
    here = [row["projection_id"] for row in parts if row["journal"] is None]
    if mode == "inline" and not here:
        raise WrongJournal(
            f"projection {name!r} reads {journal_said(parts[0]['journal'])}: a transaction that appends there cannot "
            "handle here"
        )
    if mode == "inline" and (missing := await session.fetchrow(_MISSING_TABLES, here)):
        raise NotAllowed(
            f"projection {name!r} cannot be inline yet: table {missing['table_name']} of its read model is not in the "
            "database, and no append could be handled. Start a worker of it, which creates the table",
            "missing_table",
        )
    for number in here:
        await session.execute(_SET_MODE, number, mode)


async def rescale(session: Session, name: str, ranges: int) -> None:
    """
    Cut the slices of a projection into another number of ranges, while it runs; of each journal, if it reads several.

    Progress is kept. Batches in flight roll back, and the workers share the new ranges within about a heartbeat.

    Args:
        session: Outside a transaction.
        name: The projection.
        ranges: 1 to 1024.

    Raises:
        NotFound: None of this name has run.
        InvalidValue: ``ranges`` is not 1 to 1024.
    """
    cut = [one.min_slice for one in slice_ranges(ranges)]
    for row in await _rows(session, [name]):
        await session.execute(_SET_RANGES, row["projection_id"], cut)


async def remove(session: Session, name: str, *, force: bool = False) -> Removed:
    """
    Remove a projection with its ranges, offsets and parked sources; its read model is left as it is.

    Of one that reads several journals, ``NAME@JOURNAL`` removes the part that reads that journal, and nothing else.

    Args:
        session: A session on the database, in a transaction or not.
        name: The projection.
        force: Also while workers run it: they say so, and handle nothing more of it until they are started again.

    Raises:
        NotFound: None of this name has run.
        ProjectionRuns: Workers run it.
        DatabaseError: A rebuild of it is unfinished, or the tables that one has replaced are still there.
    """
    removed = Removed(0, 0, 0, 0)
    for part in await _rows(session, [name]):
        with own_errors():
            row = await session.fetchrow(_REMOVE, part["projection_id"], force)
        if row is not None:
            removed = Removed(*map(add, removed, row.values()))
    return removed


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
    for row in await _rows(session, [name]):
        await session.execute(_SET_OFFSET, row["projection_id"], max(start, BEGINNING))


async def clear_offset(session: Session, name: str) -> None:
    """Make a projection start at the beginning; see :func:`set_offset`."""
    await set_offset(session, name, BEGINNING)
