"""
Closed partitions in slice order: each is copied, compared with its copy and replaced by it.

A range of slices then lies on pages of its own, which is what a batch over slices reads. A run that is killed leaves
the old partition or the new one, and at most a copy that the next run removes.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from journal.database import Database
from journal.database.session import Session
from journal.errors import DatabaseError, SchemaError
from journal.partitions.making import IN_THE_WAY, Patience
from journal.schema import check_version
from journal.writers import WritersInFlight, look_at_writers, wait_for_writers

_CLOSED = """
SELECT c.oid, p.name, p.from_timestamp, p.to_timestamp, p.bytes
FROM projections.partitions AS p
INNER JOIN pg_catalog.pg_class AS c ON c.oid = p.relation AND c.relnamespace = 'projections'::regnamespace
WHERE p.table_name = 'events' AND NOT p.clustered
AND p.from_timestamp IS NOT NULL AND p.to_timestamp <= clock_timestamp() - $1::interval
AND pg_relation_size(c.oid) > 0
ORDER BY p.from_timestamp
"""
_BYTES = "SELECT p.bytes FROM projections.partitions AS p WHERE p.table_name = 'events' AND p.name = $1"
_CLEAN = "SELECT projections._drop_partition_copies_v1()"
_COPY = "SELECT projections._cluster_partition_v1($1)"
_FREEZE = "VACUUM (FREEZE, ANALYZE) projections.events_copy_of_{}"
_SWAP = "SELECT projections._swap_partition_v1($1, $2, $3)"

_IN_USE = "55006"
_OWN_WORDS = {_IN_USE, "PJ050", "0A000", "42704"}
"""Codes of what another attempt may get past, where the database's own words say what it is; see also IN_THE_WAY."""

Progress = Callable[["ClusteredPartition", str], None]
"""Called with a partition when a stage of it begins: ``copy``, ``freeze``, ``compare and swap``."""


@dataclass(frozen=True, slots=True)
class ClusteredPartition:
    """
    A closed partition that is in slice order now, or should be.

    Args:
        name: The table's name in the schema ``projections``.
        from_timestamp: Its first instant.
        to_timestamp: The first instant after it.
        bytes_before: What it took on disk, indexes included.
        bytes_after: What it takes now; None when it was left as it was.
        events: How many it holds; None when it was left as it was.
        seconds: How long the work took.
        problem: Why it was left as it was; None when it is in slice order.
    """

    name: str
    from_timestamp: datetime
    to_timestamp: datetime
    bytes_before: int
    bytes_after: int | None = None
    events: int | None = None
    seconds: float = 0.0
    problem: str | None = None


async def cluster(
    database: Database,
    *,
    closed_for: timedelta = timedelta(hours=1),
    lock_timeout: timedelta = timedelta(milliseconds=500),
    attempts: int = 5,
    pause: timedelta = timedelta(seconds=1),
    patience: timedelta = timedelta(minutes=5),
    progress: Progress | None = None,
) -> list[ClusteredPartition]:
    """
    Put closed partitions in slice order: (entity_type, slice, source_id, seq_nr).

    Done before large batches over ranges of slices, such as rebuilds; a partition that is in slice order is not
    done again. Appends and readers go on; imports wait while a partition is compared with its copy, and
    everybody does, for no longer than ``lock_timeout``, for the exchange. The largest partition must fit on the
    disk twice. The connected role must own the schema.

    Args:
        database: The database that has the schema, as :func:`journal.connect` opens it.
        closed_for: Partitions whose time ended at least this long ago are closed.
        lock_timeout: The longest wait for transactions that use the log, and so the longest time for which a new
            one waits behind this one. Keep it below the server's ``deadlock_timeout`` (1 s).
        attempts: How often to try what is in the way of others.
        pause: Between two attempts.
        patience: How long to wait for transactions that are older than the copy: they could not see it.
        progress: Called when a stage begins.

    Returns:
        What was done, and what could not be with its problem, in the order of time.

    Raises:
        ValueError: A setting is out of bounds.
        SchemaError: The schema is missing, or of another version.
        DatabaseError: The database refused for a reason that a later attempt does not fix, such as a full disk.
    """
    if closed_for < timedelta(0):
        raise ValueError(f"closed_for must not be negative, but is {closed_for}")
    waits = Patience(lock_timeout, attempts, pause, patience)
    async with database.session() as session:
        await check_version(session)
        problem = await _clean(session)
        closed = await _closed(session, closed_for)
        if closed and problem is None:
            problem = await _unsettled(session, waits)
    if problem is not None:
        return [replace(partition, problem=problem) for _, partition in closed]
    return [await _cluster(database, oid, found, waits, progress) for oid, found in closed]


async def _closed(session: Session, closed_for: timedelta) -> list[tuple[int, ClusteredPartition]]:
    rows = await session.fetch(_CLOSED, closed_for)
    return [(oid, ClusteredPartition(*values)) for oid, *values in (row.values() for row in rows)]


async def _unsettled(session: Session, waits: Patience) -> str | None:
    """
    Wait until the appends that are in flight have ended; says which have not.

    They may have read the clock in a partition that is closed now; those that begin later have not.
    """
    try:
        first = await look_at_writers(session)
        await wait_for_writers(session, first.holders, patience=waits.total)
    except WritersInFlight as error:
        return str(error)
    return None


async def _cluster(
    database: Database,
    oid: int,
    partition: ClusteredPartition,
    waits: Patience,
    progress: Progress | None,
) -> ClusteredPartition:
    begun = time.monotonic()
    try:
        events = await _exchange(database, oid, partition, waits, progress)
    except DatabaseError as error:
        problem = str(error) if error.sqlstate in _OWN_WORDS else IN_THE_WAY.get(error.sqlstate or "")
        if problem is None:
            raise
        async with database.session() as session:
            await _clean(session)
        return replace(partition, problem=problem, seconds=time.monotonic() - begun)
    async with database.session() as session:
        size = await session.fetchval(_BYTES, partition.name)
    return replace(partition, events=events, bytes_after=size, seconds=time.monotonic() - begun)


async def _exchange(
    database: Database,
    oid: int,
    partition: ClusteredPartition,
    waits: Patience,
    progress: Progress | None,
) -> int:
    tell = progress or (lambda *_: None)
    tell(partition, "copy")
    async with database.session() as session, session.transaction():
        await waits.limit(session)
        await session.execute(_COPY, partition.name)
    deadline = time.monotonic() + waits.total.total_seconds()
    while True:
        try:
            tell(partition, "freeze")
            await _freeze(database, oid)
            tell(partition, "compare and swap")
            async with database.session() as session, session.transaction():
                await waits.limit(session)
                return int(await session.fetchval(_SWAP, partition.name, waits.attempts, waits.pause))
        except DatabaseError as error:
            if error.sqlstate != _IN_USE or time.monotonic() >= deadline:
                raise
        await asyncio.sleep(waits.pause.total_seconds())


async def _freeze(database: Database, oid: int) -> None:
    async with database.session() as session:
        with suppress(SchemaError):  # the copy is gone: the swap says so
            await session.execute(_FREEZE.format(oid))


async def _clean(session: Session) -> str | None:
    """Remove what a killed run has left; says what is in the way."""
    try:
        await session.execute(_CLEAN)
    except DatabaseError as error:
        if error.sqlstate != _IN_USE:
            raise
        return str(error)
    return None
