"""
How far projections of other frameworks are, by what these have stored: read once, for one of ours to go on there.

A *position* says that a log was handled up to a number. A *timestamp store* (Akka and Pekko over R2DBC) has a row for
each source that was handled lately, and says nothing of others: what is older than the rows that are kept was handled.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias, get_args

from journal import (
    ALL_SLICES,
    BEGINNING,
    NUMBER_OF_SLICES,
    Database,
    DatabaseError,
    EntityTypes,
    InvalidValue,
    Key,
    Log,
    OwnedSession,
    Position,
    Row,
    Session,
    SliceReader,
)
from journal.database import quote
from offsets.errors import MoveRefused

Framework: TypeAlias = Literal["akka", "pekko", "eventsourcing", "message-db", "emmett"]
"""Whose offsets can be read."""

KEPT = timedelta(minutes=5)
"""How long Akka and Pekko keep offsets of sources at least, with their own settings."""
_SLICES_AT_A_TIME = 16

# Of a table that is there: what of a transaction that still stores would be missed.
_IN_FLIGHT = """
SELECT coalesce('process ' || min(l.pid), 'a prepared transaction') FROM pg_catalog.pg_locks AS l
WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'RowExclusiveLock'
AND l.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
AND l.relation IN (
    SELECT to_regclass($1)::oid UNION ALL SELECT t.relid::oid FROM pg_catalog.pg_partition_tree(to_regclass($1)) AS t
)
HAVING count(*) > 0
"""
_SNAPSHOT = "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"
_KNOWN = "SELECT DISTINCT {owner}::text AS name FROM {table} WHERE {known} ORDER BY 1 LIMIT 20"
_NEWEST = """
SELECT DISTINCT ON (slice) slice, projection_key, timestamp_offset FROM {table}
WHERE projection_name = $1 ORDER BY slice, timestamp_offset DESC, timestamp_consumed DESC
"""
_SEQUENCES = """
SELECT projection_key AS key, CASE WHEN manifest IN ('SEQ', 'LNG') THEN current_offset::bigint END AS position
FROM {table} WHERE projection_name = $1
"""
_TRACKING = """
SELECT application_name AS key, max(notification_id) AS position FROM {table}
WHERE application_name <> '__migration__' AND $1::text IS NOT NULL GROUP BY application_name
"""
_POSITION_STREAM = """
SELECT '' AS key, (t.data ->> 'position')::bigint AS position FROM {table} AS t
WHERE t.stream_name = $1 ORDER BY t.position DESC LIMIT 1
"""
_PROCESSORS = """
SELECT partition || ' ' || version AS key, last_processed_checkpoint::bigint AS position
FROM {table} WHERE processor_id = $1
"""
_SUBSCRIPTIONS = """
SELECT partition || ' ' || version AS key, last_processed_position AS position
FROM {table} WHERE subscription_id = $1
"""
# What the management API has set stands for no source.
_SOURCES = """
SELECT DISTINCT ON (persistence_id COLLATE "C")
    persistence_id::text AS source_id, seq_nr, timestamp_offset AS db_timestamp, slice
FROM {table}
WHERE projection_name = $1 AND slice BETWEEN $2 AND $3 AND persistence_id NOT LIKE 'mgmt|%'
ORDER BY persistence_id COLLATE "C", seq_nr DESC
"""


class _Table(NamedTuple):
    """A table of offsets: what is read of it, and which column names projections."""

    name: str
    select: str
    owner: str = "projection_name"
    known: str = "TRUE"
    """Which rows are of projections."""
    is_shared: bool = False
    """Whether others write to it all the time."""


# By framework, and whether the log is ordered by times.
_TABLES = {
    ("akka", True): (_Table("akka_projection_timestamp_offset_store", _NEWEST),),
    ("pekko", True): (_Table("projection_timestamp_offset_store", _NEWEST),),
    ("akka", False): (_Table("akka_projection_offset_store", _SEQUENCES),),
    ("pekko", False): (_Table("pekko_projection_offset_store", _SEQUENCES),),
    ("eventsourcing", False): (
        _Table("{}_tracking", _TRACKING, "application_name", "application_name <> '__migration__'"),
    ),
    ("message-db", False): (
        _Table(
            "message_store.messages",
            _POSITION_STREAM,
            "stream_name",
            "stream_name LIKE '%:position%'",
            is_shared=True,
        ),
    ),
    ("emmett", False): (
        _Table("emt_processors", _PROCESSORS, "processor_id"),
        _Table("emt_subscriptions", _SUBSCRIPTIONS, "subscription_id"),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """
    A projection of another framework, by what that has stored of it.

    Args:
        framework: The other framework.
        name: What it is called there: the projection (Akka, Pekko, eventsourcing), the processor or subscription
            (Emmett), the stream of its position (message-db).
        table: Where that is stored, where it has no usual name: ``table`` or ``schema.table``. Without a schema it is
            one of the search path alongside the read model, and of the schema public alongside the log.
        kept: Of Akka and Pekko over R2DBC: for how long after a source's last event its offset is there for sure
            (``time-window``, or ``delete-after``).
    """

    framework: Framework
    name: str
    table: str | None = None
    kept: timedelta = KEPT

    def __post_init__(self) -> None:
        if self.framework not in get_args(Framework):
            raise InvalidValue(f"offsets of {self.framework!r} cannot be read")
        if self.kept < timedelta(0):
            raise InvalidValue("kept must not be negative")


@dataclass(frozen=True, slots=True)
class Standing:
    """
    How far something is in a log.

    Args:
        start: Events before it were handled, unless an offset says otherwise.
        told: What whoever decides is to know.
        bounds: For each slice the same of sources that have no offset; not before ``start``.
        offsets: Yields pages of offsets: of each source the event that was handled last.
    """

    start: datetime
    told: str
    bounds: Sequence[datetime] = ()
    offsets: Callable[[], AsyncIterator[Sequence[Key]]] | None = None


def at_position(number: int) -> Standing:
    """Up to and including a number of a log that is ordered by one."""
    if number < 0:
        raise InvalidValue(f"position {number} is not one of a log: 0 is the beginning")
    return Standing(_time(number + 1), f"events up to position {number:,} count as handled")


@asynccontextmanager
async def standing(
    database: Database, log: Log, types: EntityTypes, elsewhere: Elsewhere
) -> AsyncIterator[Standing]:
    """
    Where a projection of another framework stands, in one snapshot for the length of the block.

    What it has stored is looked for in the database of the read model, where it commits with its effects, then in
    that of the log.

    Args:
        database: Where the read model is.
        log: The log that both read.
        types: The entity types of our projection.
        elsewhere: The projection there.

    Raises:
        MoveRefused: Nothing is stored of it, or what is there cannot be gone on from; the message says why.
    """
    log = log.at_primary  # a standby may not have what was handled last
    seen: set[str] = set()
    for named in _tables(elsewhere, by_time=not log.is_by_number):
        for place, table in ((database, named), (log.database, _in_public(named))):
            async with place.session() as session:
                if not await _is_there(session, elsewhere, table):
                    continue
                await session.begin()
                try:
                    found = await _read(session, elsewhere, table, log, types)
                    if found is not None:
                        yield found
                        return
                    known = _KNOWN.format(owner=table.owner, table=_quoted(table), known=table.known)
                    seen |= {repr(row["name"]) for row in await session.fetch(known)}
                finally:
                    await session.rollback()
    there = f"it has {', '.join(sorted(seen))}" if seen else "nothing is stored there"
    raise MoveRefused(f"nothing is stored of {elsewhere.name!r} by {elsewhere.framework}: {there}")


def _tables(elsewhere: Elsewhere, *, by_time: bool) -> Sequence[_Table]:
    tables = _TABLES.get((elsewhere.framework, by_time))
    if tables is None:
        raise MoveRefused(
            f"{elsewhere.framework} does not read a log that is ordered by times: name its journal"
        )
    if elsewhere.table is not None:
        return [table._replace(name=elsewhere.table) for table in tables[:1]]
    return [table._replace(name=table.name.format(elsewhere.name.lower())) for table in tables]


def _in_public(table: _Table) -> _Table:
    """As the tables of a journal are: what the role's search path has there is its owner's."""
    return table if "." in table.name else table._replace(name=f"public.{table.name}")


def _quoted(table: _Table) -> str:
    return quote(*table.name.split("."))


async def _is_there(session: Session, elsewhere: Elsewhere, table: _Table) -> bool:
    """Whether there is the table, and nobody stores into it."""
    if await session.fetchval("SELECT to_regclass($1) IS NULL", _quoted(table)):
        return False
    if not table.is_shared and (writer := await session.fetchval(_IN_FLIGHT, _quoted(table))) is not None:
        raise MoveRefused(
            f"{writer} of the database is writing to {table.name}: stop the projection {elsewhere.name!r} of "
            f"{elsewhere.framework} first, and do this again"
        )
    return True


async def _read(
    session: OwnedSession, elsewhere: Elsewhere, table: _Table, log: Log, types: EntityTypes
) -> Standing | None:
    try:
        await session.execute(_SNAPSHOT)
        rows = await session.fetch(table.select.format(table=_quoted(table)), elsewhere.name)
    except DatabaseError as error:
        raise MoveRefused(f"table {table.name} is not of a version that is known: {error}") from error
    if not rows:
        return None
    if table.select is _NEWEST:
        return _timestamped(session, rows, _quoted(table), elsewhere)
    return await _positioned(rows, elsewhere, log, types)


def _timestamped(session: Session, rows: Sequence[Row], table: str, elsewhere: Elsewhere) -> Standing:
    """
    Where the timestamp store stands: each key of it has the newest time that its instance has handled.

    An instance deletes rows by the newest of all its slices, so its slices have to be known: they are what lies between
    the first and the last slice that its key has stored last.
    """
    newest: dict[str, datetime] = {}
    runs: dict[str, tuple[int, int]] = {}
    for row in rows:
        key, number = row["projection_key"], row["slice"]
        newest[key] = max(newest.get(key, BEGINNING), row["timestamp_offset"])
        runs[key] = (runs.get(key, (number, number))[0], number)
    in_order = sorted(runs.items(), key=lambda run: run[1])
    for (one, (_, last)), (other, (first, _)) in pairwise(in_order):
        if first <= last:
            raise MoveRefused(
                f"keys {one!r} and {other!r} of projection {elsewhere.name!r} both have slices from {first} to {last}: "
                "it has run with other ranges before. Give the slices of each range the key that it runs with: UPDATE "
                f"{table} SET projection_key = … WHERE projection_name = … AND slice BETWEEN … AND …"
            )
    start = max(min(newest.values()) - elsewhere.kept, BEGINNING)
    bounds = [start] * NUMBER_OF_SLICES
    for key, (first, last) in runs.items():
        bounds[first : last + 1] = [max(newest[key] - elsewhere.kept, BEGINNING)] * (last + 1 - first)

    async def offsets() -> AsyncIterator[Sequence[Key]]:
        for first in range(0, NUMBER_OF_SLICES, _SLICES_AT_A_TIME):
            last = first + _SLICES_AT_A_TIME - 1
            rows = await session.fetch(_SOURCES.format(table=table), elsewhere.name, first, last)
            yield [Key(*row.values()) for row in rows]

    told = (
        f"events before {start.isoformat()} count as handled, and later ones as the offset of their source says: what "
        f"{elsewhere.framework} has passed over since then is handled"
    )
    return Standing(start, told, bounds, offsets)


async def _positioned(rows: Sequence[Row], elsewhere: Elsewhere, log: Log, types: EntityTypes) -> Standing:
    positions: dict[str, int] = {row["key"]: row["position"] for row in rows}
    if None in positions.values():
        raise MoveRefused(
            f"what {elsewhere.framework} has stored for {elsewhere.name!r} is not a number of a log"
        )
    found = at_position(min(positions.values()))
    told = f"{found.told}, also what {elsewhere.framework} has passed over before it was visible"
    if len(set(positions.values())) == len(rows) == 1:
        return Standing(found.start, told)
    if elsewhere.framework not in {"akka", "pekko"}:
        raise MoveRefused(
            f"{elsewhere.framework} has several positions for {elsewhere.name!r} ({positions}): pass the one that holds"
        )
    handled = await _by_tags(
        log, types, {tag: _time(number) for tag, number in positions.items()}, elsewhere.name
    )

    async def offsets() -> AsyncIterator[Sequence[Key]]:
        yield handled

    return Standing(
        found.start, f"{told}; later ones as far as the positions of {len(positions)} tags say", (), offsets
    )


async def _by_tags(log: Log, types: EntityTypes, until: dict[str, datetime], name: str) -> list[Key]:
    """Of keys that are tags, each with a position of its own: how far sources are beyond the lowest of them."""
    last: dict[str, Key] = {}
    unhandled: dict[str, int] = {}
    known: set[str] = set()
    reader = SliceReader(types, ALL_SLICES, queries=log.queries)
    first = min(until.values())
    place = Position.before(first)
    async with log.session() as session:
        while page := await reader.events(session, place, max(until.values())):
            for e in page:
                tags = until.keys() & set(e.tags or ())
                known |= tags
                if not tags or e.db_timestamp <= first:
                    continue
                if all(e.db_timestamp > until[tag] for tag in tags):
                    unhandled.setdefault(e.source_id, e.seq_nr)
                elif e.source_id in unhandled:
                    raise MoveRefused(
                        f"of source {e.source_id!r}, projection {name!r} has handled event {e.seq_nr}, but not "
                        f"{unhandled[e.source_id]}, which has another tag: one offset cannot say that. Let all keys "
                        "run to the end, and pass the position"
                    )
                else:
                    last[e.source_id] = Key(e.source_id, e.seq_nr, e.db_timestamp, e.slice)
            place = page[-1].position
    if unknown := sorted(until.keys() - known):
        raise MoveRefused(
            f"the keys of projection {name!r} stand at several positions, and {unknown[0]!r} is not the tag of an event"
            " there: which events it has handled cannot be told. Let all of them run to the end, and pass the position"
        )
    return list(last.values())


def _time(number: int) -> datetime:
    """The time that a number is in a log that is ordered by numbers."""
    return BEGINNING + timedelta(microseconds=number)
