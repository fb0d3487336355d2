"""
Old partitions leave when everyone has passed them.

Each goes in a short transaction of its own, which asks again what keeps it while nobody can come to need it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

from journal.database import Database
from journal.errors import DatabaseError
from journal.partitions.listing import Partition, closed_partitions
from journal.partitions.making import BUSY, IN_THE_WAY, Patience, begin_maintaining

Archive: TypeAlias = Callable[[Partition], Awaitable[None] | None]
"""Puts the rows of a closed partition elsewhere; what it raises keeps it here. A plain function runs in a thread."""

_DROP = "SELECT projections._drop_partition_v1($1, $2, $3, $4)"
_UNREAD = "SELECT u.kind, u.holder, u.unread FROM projections._unread_rows_v1($1) AS u"
_CONTENT = """
SELECT coalesce(sum(c.events), 0)::bigint AS rows, coalesce(sum(c.content), 0) AS content
FROM projections.partitions AS p
LEFT JOIN LATERAL projections._content_of_events_v1(p.from_timestamp, p.to_timestamp) AS c ON TRUE
WHERE p.name = $1 GROUP BY p.name
"""

_GONE = "PJ070"
_MOST_WAITS = 3
"""How many times the patience for one partition a run has: what is in the way of one is mostly in the way of all."""
_NOT_TRIED = "not tried: transactions that use the table were in the way of others before it"
_SETTINGS = frozenset({"retention", "archive"})


@dataclass(frozen=True, slots=True)
class UnreadRows:
    """
    Whose rows were lost with a partition that was dropped by force.

    Args:
        kind: ``projection``, ``rebuild`` or ``group``.
        name: Which one; of a rebuild, its projection.
        rows: How many it had not read. A rebuild that lacks some cannot be completed: it is begun again.
    """

    kind: str
    name: str
    rows: int


@dataclass(frozen=True, slots=True)
class DroppedPartition:
    """
    A partition that was dropped, or should have been.

    Args:
        partition: The partition.
        archived: Whether it was archived first.
        unread: What was lost, and for which readers, where it was dropped by force.
        problem: Why it is still there; None when it is not.
    """

    partition: Partition
    archived: bool = False
    unread: tuple[UnreadRows, ...] = ()
    problem: str | None = None


async def drop_closed(
    database: Database, *, force: bool, archive: Archive | None, patience: Patience
) -> tuple[list[DroppedPartition], list[Partition]]:
    """
    Drop what retention lets go and nobody needs, by force also what has not been read; the role must own the schema.

    Returns:
        What was dropped, or should have been; and what is kept, with its holders.
    """
    async with database.session() as session:
        found = await closed_partitions(session)
    dropped: list[DroppedPartition] = []
    kept: list[Partition] = []
    for partition in found:
        if _keeping(partition, force=force, archives=archive is not None):
            kept.append(partition)
        elif sum(each.problem in IN_THE_WAY.values() for each in dropped) >= _MOST_WAITS:
            dropped.append(DroppedPartition(partition, problem=_NOT_TRIED))
        elif result := await _retire(database, partition, archive, patience, force=force):
            dropped.append(result)
    return dropped, kept


def _keeping(partition: Partition, *, force: bool, archives: bool) -> bool:
    kinds = {holder.kind for holder in partition.holders}
    if archives:
        kinds.discard("archive")
    return bool(kinds & _SETTINGS if force else kinds)


async def _retire(
    database: Database, partition: Partition, archive: Archive | None, patience: Patience, *, force: bool
) -> DroppedPartition | None:
    unread: tuple[UnreadRows, ...] = ()
    hook = archive if partition.table == "events" else None
    async with database.session() as session:
        if hook is not None:
            found = await session.fetch(_CONTENT, partition.name)
            if not found:
                return None
            partition = replace(partition, rows=found[0]["rows"], content=int(found[0]["content"]))
        if force:
            unread = tuple(UnreadRows(*row.values()) for row in await session.fetch(_UNREAD, partition.name))
    if hook is not None and (problem := await _archive(hook, partition)):
        return DroppedPartition(partition, problem=problem)
    wanted = DroppedPartition(partition, archived=hook is not None, unread=unread)
    return await _drop(database, wanted, patience, force=force)


async def _archive(archive: Archive, partition: Partition) -> str | None:
    """Archive a partition; returns why it was not."""
    try:
        done = await asyncio.to_thread(archive, partition)
        if inspect.isawaitable(done):
            await done
    except Exception as error:  # noqa: BLE001 - whatever a user's code raises, the partition stays
        return f"not archived: {type(error).__name__}: {error}"
    return None


async def _drop(
    database: Database, wanted: DroppedPartition, patience: Patience, *, force: bool
) -> DroppedPartition | None:
    """Drop a partition, trying as often as patience says; None when somebody else has."""
    for attempt in range(patience.attempts):
        if attempt:
            await asyncio.sleep(patience.pause.total_seconds())
        try:
            wanted = replace(wanted, problem=await _try(database, wanted, patience, force=force))
        except DatabaseError as error:
            if error.sqlstate == _GONE:
                return None
            wanted = replace(wanted, problem=IN_THE_WAY.get(error.sqlstate or "", str(error)))
            if error.sqlstate not in IN_THE_WAY:
                break
        if wanted.problem is None:
            break
    return wanted if wanted.problem is None else replace(wanted, unread=())


async def _try(
    database: Database, wanted: DroppedPartition, patience: Patience, *, force: bool
) -> str | None:
    async with database.session() as session, session.transaction():
        if not await begin_maintaining(session, patience):
            return BUSY
        partition = wanted.partition
        archived = (partition.rows, partition.content) if wanted.archived else (None, None)
        await session.execute(_DROP, partition.name, force, *archived)
    return None
